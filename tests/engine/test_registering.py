"""What a program's values become in the state, what it is handed in return, and what is said of one that breaks."""

from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any

import pulumi
import pytest

from tests.support.engine import Bench, Thing, messages, output

Program = Callable[[], object]


class Typed(pulumi.CustomResource):
    """A resource whose class says what its outputs are."""

    number: pulumi.Output[int]
    deep: pulumi.Output[Mapping[str, Any]]

    def __init__(self, name: str, number: float, deep: Mapping[str, object]) -> None:
        super().__init__("locallb:index:ProxyConfig", name, {"number": number, "deep": deep, "version": None})


class Group(pulumi.ComponentResource):
    """A component with an input, and an output that it makes of a child."""

    def __init__(self, name: str, size: pulumi.Input[float]) -> None:
        super().__init__("local:index:Group", name, {"size": size, "nothing": None, "list": (1, 2.5, [None, True])})
        self.child = Thing("LoopbackAddress", name, {"address": "127.77.0.1"}, pulumi.ResourceOptions(parent=self))
        self.register_outputs({"claim": self.child.id, "none": None, "size": size})


class Colour(StrEnum):
    """Texts that are more."""

    RED = "red"


class Size(IntEnum):
    """Numbers that are more."""

    LARGE = 3


@pulumi.output_type
class Place:
    """What an output is an object of."""

    def __init__(self, port: int) -> None:
        pulumi.set(self, "port", port)

    @property
    @pulumi.getter
    def port(self) -> int:
        found: int = pulumi.get(self, "port")
        return found


class Placed(pulumi.CustomResource):
    """A resource whose class promises an object."""

    place: pulumi.Output[Place]

    def __init__(self, name: str) -> None:
        super().__init__("locallb:index:ProxyConfig", name, {"place": {"port": 80}})


def _reported(inputs: dict[str, Any]) -> None:
    Thing("ServiceStatus", "told", inputs)


def _numbers_read_back() -> None:
    typed = Typed("typed", 7, {"a": [1, 2.5, {"b": 3}], "c": True, "d": None})
    deep = typed.deep.apply(lambda deep: f"{deep['a'][0]} {deep['a'][2]['b']} {deep['c']}")
    _reported({"as_int": typed.number.apply(str), "as_float": deep})


def _outputs_inside() -> None:
    one = Thing("LoopbackAddress", "one", {"address": "127.77.0.1"})
    two = Thing("LoopbackAddress", "two", {"address": "127.77.0.2"})
    _reported({"list": [one.id, {"deep": two.id}], "joined": pulumi.Output.concat(one.id, "+", two.id), "none": None})


def _awaited() -> None:
    async def later() -> str:
        return "late"

    _reported({"ip": later(), "output": pulumi.Output.from_input(later())})


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (_numbers_read_back, {"as_float": "1.0 3.0 True", "as_int": "7"}),
        (
            _outputs_inside,
            {
                "joined": "LoopbackAddress/one+LoopbackAddress/two",
                "list": ["LoopbackAddress/one", {"deep": "LoopbackAddress/two"}],
            },
        ),
        (_awaited, {"ip": "late", "output": "late"}),
        (lambda: _reported({"ip": Placed("placed").place.apply(lambda place: str(place.port))}), {"ip": "80"}),
        (
            lambda: _reported({"ip": Colour.RED, Colour.RED: {Colour.RED: [Colour.RED, Size.LARGE]}}),
            {"ip": "red", "red": {"red": ["red", 3]}},
        ),
        (lambda: _reported({"ip": "grün \U0001f600"}), {"ip": "grün \U0001f600"}),
        (lambda: _reported({"ip": 2**60 + 1, "deep": [2**53 + 1]}), {"deep": [2**53], "ip": float(2**60)}),
    ],
)
def test_values_of_a_program_are_plain_data_in_the_state(
    bench: Bench, program: Program, expected: Mapping[str, object]
) -> None:
    """Whatever they were in the program."""
    result = bench.engine().up(program)
    assert result.ok, messages(result)
    (reported,) = (resource for resource in bench.checkpoint().resources if resource.urn.endswith("::told"))
    assert dict(reported.inputs) == expected


def test_a_component_has_its_inputs_and_what_it_made_of_its_children(bench: Bench) -> None:
    """Another one may take its input over as an output."""

    def program() -> None:
        group = Group("group", 3)
        Group("other", group.__dict__["size"])

    assert bench.engine().up(program).ok
    found = {one.urn.rpartition("::")[2]: one for one in bench.checkpoint().resources if "Group" in one.type}
    assert {name: (dict(one.inputs), dict(one.outputs)) for name, one in found.items()} == {
        name: ({"list": [1, 2.5, [None, True]], "size": 3}, {"claim": f"LoopbackAddress/{name}", "size": 3})
        for name in ("group", "other")
    }


def _breaks() -> None:
    def fail(_claim: str) -> str:
        raise ValueError("not like this")

    _reported({"ip": output(Thing("LoopbackAddress", "one", {"address": "127.77.0.1"}), "claim").apply(fail)})


def _twice() -> None:
    _reported({"ip": "x"})
    _reported({"ip": "y"})


_OF_TOLD = "while processing resource: 'told', type: 'locallb:index:ServiceStatus'"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (_breaks, f"the program failed: ValueError: not like this, {_OF_TOLD}"),
        (
            lambda: _reported({"ip": 1j}),
            f"the program failed: ValueError: unexpected input of type complex for ip in Thing, {_OF_TOLD}",
        ),
        (
            lambda: _reported({"ip": "\ud800"}),
            (
                "the program failed: ValueError: 'utf-8' codec can't encode character '\\ud800' in position 0:"
                f" surrogates not allowed, {_OF_TOLD}"
            ),
        ),
        (
            _twice,
            (
                "Duplicate resource URN 'urn:pulumi:dev::local-lb::locallb:index:ServiceStatus::told'; try giving it a"
                " unique name"
            ),
        ),
        (
            lambda: _reported({"ip": float("inf")}),
            "the number inf isn't supported by the embedded engine; use `pulumi up`",
        ),
    ],
)
def test_a_program_that_breaks_is_told_in_one_sentence(bench: Bench, program: Program, expected: str) -> None:
    """Its own words at first: the SDK wraps them in what it was about."""
    assert messages(bench.engine().up(program)) == [expected]
