"""Statistics of language models: figures for each token, whole answers, prompts against steps.

Open `token_figures`; `phases` compares rankings by two workloads, `phases_table` shows them.
"""
