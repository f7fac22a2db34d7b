from fleetrank.analysis.stored.last_result import LastResult


def test_the_same_object_and_key_find_the_result_and_its_like_does_not() -> None:
    made: list[str] = []
    last: LastResult[str] = LastResult()

    def get(source: object, key: str) -> str:
        def make() -> str:
            made.append(key)
            return f"{key}{len(made)}"

        return last.get(source, key, make)

    one, like = [1], [1]
    assert [get(one, "a"), get(one, "a")] == ["a1", "a1"]
    assert get(like, "a") == "a2", "equal, but another object"
    assert get(like, "b") == "b3"
    assert get(like, "a") == "a4", "only the last one is kept"
