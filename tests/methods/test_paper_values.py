"""What was not given becomes the paper's value; nothing else of a part changes."""

from pydantic import PrivateAttr

from threefold.methods import EWC, Method, resolve


class Remembering(EWC):
    """EWC with something of its own beside the hyperparameters."""

    _table: list[int] = PrivateAttr(default_factory=list)


def test_a_part_keeps_what_it_holds_beside_its_hyperparameters():
    for given, wanted in (({}, 1e7), ({"strength": 5.0}, 5.0)):
        part = Remembering(labels="true", **given)
        part._table.extend([1, 2])
        (found,) = resolve(Method(part), "split", "task").parts
        assert found._table == [1, 2]
        assert (found.strength, found.labels) == (wanted, "true")
        assert found.model_fields_set == part.model_fields_set == {"labels", *given}, "what was given stays marked so"
        assert part.strength == given.get("strength"), "the one that was given is as it was"
