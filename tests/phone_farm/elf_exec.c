// Preloaded into the shell of an emulated phone: ARM programs run under qemu-user.
//
// A kernel refuses a program of another processor; to register an emulator with it needs root, and
// would change the whole machine. The emulators are links in the phone's folder.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* emulator_of(const char* path) {
  Elf32_Ehdr head;  // up to e_machine equal for 32 and 64 bits
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n_bytes = file < 0 ? 0 : read(file, &head, sizeof head);
  if (file >= 0) close(file);
  if (n_bytes != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return NULL;
  return head.e_machine == EM_AARCH64 ? "aarch64" : head.e_machine == EM_ARM ? "arm" : NULL;
}

int execve(const char* path, char* const argv[], char* const envp[]) {
  int (*run)(const char*, char* const[], char* const[]);
  *(void**)&run = dlsym(RTLD_NEXT, "execve");
  const char *emulator = emulator_of(path), *phone = getenv("FLEETRANK_PHONE");
  if (emulator == NULL || phone == NULL) return run(path, argv, envp);
  char emulator_path[4096];
  snprintf(emulator_path, sizeof emulator_path, "%s/system/bin/qemu-%s", phone, emulator);
  size_t n = 0;
  while (argv[n] != NULL) n++;
  // QEMU_CPU names a core of 64 bits, which the other emulator does not know.
  int is_arm = strcmp(emulator, "arm") == 0, first = is_arm ? 6 : 4;
  char** words = calloc(n + first, sizeof *words);
  if (words == NULL) return -1;
  words[0] = emulator_path, words[1] = "-0", words[2] = argv[0];
  if (is_arm) words[3] = "-cpu", words[4] = "max";
  words[first - 1] = (char*)path;
  for (size_t i = 1; i < n; i++) words[first - 1 + i] = argv[i];
  return run(emulator_path, words, envp);
}

int execvp(const char* file, char* const argv[]) {
  int (*run)(const char*, char* const[]);
  *(void**)&run = dlsym(RTLD_NEXT, "execvp");
  return strchr(file, '/') == NULL ? run(file, argv) : execve(file, argv, environ);
}
