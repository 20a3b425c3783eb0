"""What a program registers, from the SDK to the core and back: the engine's side of Pulumi's wire, in this process.

`Monitor` and `EngineService` have the methods of the gRPC stubs, which the SDK calls; they translate requests and
replies, and refuse by name what is left to the official command line. The `Registrar` passes registrations to the core,
and answers each once its resource has settled: the program's threads wait in it, all else is done in the core's thread.
`refuse_unfinished` keeps the official engine from starting from an outdated state: an interrupted update of this one is
in its journal, which that one doesn't read, so that it would create again what exists.
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Any, NoReturn, TypeVar

from google.protobuf import empty_pb2
from msgspec import Struct, field
from pulumi.runtime.proto import engine_pb2, resource_pb2
from pulumi.runtime.settings import SETTINGS

from locallb.engine.core.core import Core
from locallb.engine.core.declared import Goal
from locallb.engine.core.desired_index import Goals
from locallb.engine.core.events import Severity
from locallb.engine.core.reporting import Reporter
from locallb.engine.sdk_wire import from_struct, to_struct
from locallb.engine.state.errors import Cancelled, EngineError, StateUnwritable, Unsupported, UpdateUnfinished
from locallb.engine.state.project import load_project
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.values import UNKNOWN, Properties, Value, has_unknown, number, without_unknown
from locallb.engine.store import Store
from locallb.patterns import pattern

_LONGEST = 2.0
"""Seconds for which an update that is under way may take to end."""


class RegistrationReply(Struct, frozen=True):
    """What the program is answered; there are no outputs of what failed, or needs something that failed."""

    urn: str
    failed: bool = False
    id: str = ""
    outputs: Properties = field(default_factory=dict)


class Registrar:
    """Of one run of a program; `post` has a function called in the core's thread."""

    def __init__(
        self, project: str, stack: str, core: Core, goals: Goals, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self.project = project
        self.stack = stack
        self._core = core
        self._goals = goals
        self._post = post
        self._stack_outputs: Properties | None = None
        self._waiting: dict[Future[RegistrationReply], str] = {}
        """Registrations without an answer, each with its URN once the core has it."""
        self._is_closed = False
        self._lock = Lock()

    @property
    def outputs(self) -> Properties:
        """The Stack's, as far as they are registered and known."""
        return without_unknown(self._stack_outputs or {})

    @property
    def is_preview(self) -> bool:
        """Whether nothing is made, so that outputs may be unknown."""
        return self._goals.is_preview

    # The program's threads

    def register(self, goal: Goal) -> RegistrationReply:
        """Wait until a resource is as registered, or can't be. Raises EngineError when the program can't go on."""
        return self._ask(lambda: self._add(goal))

    def register_outputs(self, urn: str, outputs: Properties) -> None:
        """Set the outputs of a component, or the Stack. Raises EngineError when the program can't go on."""
        self._ask(lambda: self._set_outputs(urn, outputs))

    def _ask(self, begin: Callable[[], str]) -> RegistrationReply:
        answer: Future[RegistrationReply] = Future()
        with self._lock:
            if self._is_closed:
                raise Cancelled
            self._waiting[answer] = ""
        self._post(lambda: self._begin(answer, begin))
        return answer.result()

    # The core's thread

    def _begin(self, answer: Future[RegistrationReply], begin: Callable[[], str]) -> None:
        try:
            self._waiting[answer] = begin()
        except StateUnwritable:
            raise
        except EngineError as error:
            self._waiting.pop(answer)
            answer.set_exception(error)

    def _add(self, goal: Goal) -> str:
        if self._core.is_stopping:
            raise Cancelled
        if goal.is_stack:
            self._core.enter_stack()
            return self._goals.root
        urn = self._goals.add(goal)
        self._core.include(urn)
        return urn

    def _set_outputs(self, urn: str, outputs: Properties) -> str:
        if urn == self._goals.root:
            self._stack_outputs = outputs
        elif self._core.is_as_desired(urn):
            self._goals.set_outputs(urn, without_unknown(outputs))
            self._core.include(urn)
        return urn

    def enter_outputs(self, *, is_whole: bool) -> None:
        """Let the state have the Stack's outputs; of a program that broke off it keeps the others."""
        if self._stack_outputs is not None:
            stack = self._core.snapshot.live[self._goals.root]
            former = {} if is_whole else stack.outputs
            self._core.enter_stack({**former, **_resolved_outputs(stack, self._stack_outputs)})

    def answer(self) -> None:
        """Answer what has settled, or can't for now."""
        with self._lock:
            waiting = [*self._waiting.items()]
        for answer, urn in waiting:
            try:
                reply = self._reply(urn) if urn else None
            except Cancelled as error:
                self._waiting.pop(answer)
                answer.set_exception(error)
            else:
                if reply:
                    self._waiting.pop(answer)
                    answer.set_result(reply)

    def _reply(self, urn: str) -> RegistrationReply | None:
        if urn == self._goals.root:
            return RegistrationReply(urn)
        if self._core.is_as_desired(urn):
            resource = self._core.snapshot.live[urn]
            return (
                RegistrationReply(urn, id=resource.id, outputs=resource.outputs)
                if resource.custom
                else RegistrationReply(urn)
            )
        if self._core.is_under_way(urn):
            return None
        if self._core.is_stopping:
            raise Cancelled
        return RegistrationReply(urn, failed=True)

    def close(self) -> None:
        """Refuse what waits, and all that comes."""
        with self._lock:
            self._is_closed = True
        while self._waiting:
            self._waiting.popitem()[0].set_exception(Cancelled())


def _resolved_outputs(stack: ResourceState, outputs: Properties) -> dict[str, Value]:
    """Keep the former value of an output that something failed or left out makes unknown."""
    former = {key: stack.outputs[key] for key, value in outputs.items() if has_unknown(value) and key in stack.outputs}
    return {**without_unknown(outputs), **former}


T = TypeVar("T")

# Announced to the SDK, as the official command line does, so that programs take the same way here and there.
FEATURES = tuple(
    resource_pb2.ResourceMonitorFeature.Value(f"RESOURCE_MONITOR_FEATURE_{name}")
    for name in (
        "SECRETS", "RESOURCE_REFERENCES", "OUTPUT_VALUES", "ALIAS_SPECS", "REPLACEMENT_TRIGGER", "DELETED_WITH",
        "REPLACE_WITH", "TRANSFORMS", "INVOKE_TRANSFORMS", "PARAMETERIZATION", "RESOURCE_HOOKS", "ERROR_HOOKS",
        "SENDS_OPTIONS_TO_HOOKS", "BYTE_STRING", "INVOKE_DEPENDS_ON", "INVOKE_PARENT",
    )
)  # fmt: skip
_REFUSED = {
    "Invoke": "the function {0.tok}",
    "Call": "the method {0.tok}",
    "ReadResource": "{0.type} resource '{0.name}': reading an existing resource",
    "ExistsResource": "asking whether a resource exists",
    "RegisterPackage": "a parameterized package",
    "RegisterStackTransform": "a transform of all resources",
    "RegisterStackInvokeTransform": "a transform of all function calls",
    "RegisterResourceHook": "a resource hook",
    "RegisterErrorHook": "an error hook",
}
"""Methods of the stub for what isn't done here, each with what it asks for."""
_SEVERITIES = {
    engine_pb2.INFO: Severity.INFO,
    engine_pb2.WARNING: Severity.WARNING,
    engine_pb2.ERROR: Severity.ERROR,
}


class Monitor:
    """Answers the program's registrations."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self.errors: list[EngineError] = []

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> resource_pb2.DeploymentInfo:  # noqa: N802 the stub's name
        """Return about the stack and the features."""
        return resource_pb2.DeploymentInfo(
            project=self._registrar.project,
            stack=self._registrar.stack,
            organization="organization",
            supportedFeatures=FEATURES,
        )

    def RegisterResource(  # noqa: N802 the stub's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Create, update or replace a resource as the program declares it."""
        reply = self.noted(lambda: self._registrar.register(goal_of(request)))
        return _response(reply, keeps_unknown=self._registrar.is_preview)

    def RegisterResourceOutputs(  # noqa: N802 the stub's name
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Set the outputs of a component or the Stack."""
        self.noted(lambda: self._set_outputs(request))
        return empty_pb2.Empty()

    def _set_outputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> None:
        outputs = from_struct(request.outputs, f"the outputs of {request.urn}")
        self._registrar.register_outputs(request.urn, outputs)

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:  # noqa: N802 the stub's name
        """Answer at once, so that the program ends: nothing of it is needed for deletions."""
        return empty_pb2.Empty()

    def __getattr__(self, name: str) -> Callable[[Any], NoReturn]:
        """Return what refuses a request that no program of ours makes, by saying what was asked."""
        if name not in _REFUSED:
            raise AttributeError(name)
        return lambda request: self._refuse(_REFUSED[name].format(request))

    def _refuse(self, what: str) -> NoReturn:
        error = Unsupported(what)
        self.errors.append(error)
        raise error

    def noted(self, action: Callable[[], T]) -> T:
        """Note what the program can't go on after: the SDK may wrap it beyond recognition."""
        try:
            return action()
        except EngineError as error:
            self.errors.append(error)
            raise


def _response(reply: RegistrationReply, *, keeps_unknown: bool) -> resource_pb2.RegisterResourceResponse:
    outputs = reply.outputs if keeps_unknown else without_unknown(reply.outputs)
    return resource_pb2.RegisterResourceResponse(
        urn=reply.urn,
        id="" if reply.id == UNKNOWN else reply.id,
        object=to_struct(outputs),
        result=resource_pb2.FAIL if reply.failed else resource_pb2.SUCCESS,
    )


class EngineService:
    """Takes the program's messages."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._root = ""

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:  # noqa: N802 the stub's name
        """Pass a message on; debug messages are dropped."""
        severity = _SEVERITIES.get(request.severity)
        if severity is not None:
            self._reporter.log(severity, request.message, request.urn)
        return empty_pb2.Empty()

    def GetRootResource(self, _request: object) -> engine_pb2.GetRootResourceResponse:  # noqa: N802 the stub's name
        return engine_pb2.GetRootResourceResponse(urn=self._root)

    def SetRootResource(  # noqa: N802 the stub's name
        self, request: engine_pb2.SetRootResourceRequest
    ) -> engine_pb2.SetRootResourceResponse:
        self._root = request.urn
        return engine_pb2.SetRootResourceResponse()

    def RequirePulumiVersion(self, _request: object) -> NoReturn:  # noqa: N802 the stub's name
        """Refuse: there is no Pulumi here."""
        raise Unsupported("requiring a version of Pulumi")


Request = resource_pb2.RegisterResourceRequest

_HOOKS = ("before_create", "after_create", "before_update", "after_update", "before_delete", "after_delete", "on_error")
_REFUSED_OPTIONS: dict[str, Callable[[Request], bool]] = {
    "protect": lambda r: r.protect,
    "retain_on_delete": lambda r: r.retainOnDelete,
    "ignore_changes": lambda r: bool(r.ignoreChanges),
    "replace_on_changes": lambda r: bool(r.replaceOnChanges),
    "additional_secret_outputs": lambda r: bool(r.additionalSecretOutputs),
    "aliases": lambda r: bool(r.aliases or r.aliasURNs),
    "import_": lambda r: bool(r.importId),
    "deleted_with": lambda r: bool(r.deletedWith),
    "replace_with": lambda r: bool(r.replace_with),
    "replacement_trigger": lambda r: r.HasField("replacement_trigger"),
    "transforms": lambda r: bool(r.transforms),
    "state_migrations": lambda r: bool(r.state_migrations),
    "hooks": lambda r: any(getattr(r.hooks, name) for name in _HOOKS),
    "hide_diffs": lambda r: bool(r.hideDiffs),
    "env_var_mappings": lambda r: bool(r.envVarMappings),
    "plugin_download_url": lambda r: bool(r.pluginDownloadURL or r.pluginChecksums),
}


def goal_of(request: Request) -> Goal:
    """Read a registration. Raises Unsupported for what this engine leaves to the official command line."""
    party = f"{request.type} resource '{request.name}'"
    if request.remote or request.packageRef:
        raise Unsupported(f"{party}: a component or package that a plugin provides")
    for option, is_set in _REFUSED_OPTIONS.items():
        if is_set(request):
            raise Unsupported(f"{party}: the resource option {option}")
    return Goal(
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=from_struct(request.object, party),
        parent=request.parent,
        provider=request.provider,
        version=request.version,
        dependencies=tuple(sorted(request.dependencies)),
        property_dependencies={
            key: tuple(sorted(urns.urns)) for key, urns in sorted(request.propertyDependencies.items())
        },
        delete_before_replace=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
        timeouts=_timeouts(request.customTimeouts, party),
    )


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = pattern(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def _timeouts(given: Request.CustomTimeouts, party: str) -> dict[str, Value]:
    texts = {"create": given.create, "update": given.update, "delete": given.delete}
    return {name: number(_seconds(text, f"{party}: the {name} timeout")) for name, text in texts.items() if text}


def _seconds(text: str, what: str) -> float:
    """Read a duration as Go writes it, such as 1h30m."""
    parts = _DURATION.findall(text)
    if "".join(amount + unit for amount, unit in parts) != text:
        raise EngineError(f"{what} is {text!r}, which is no duration; write it like 30s or 1h30m")
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)


def refuse_unfinished(root: Path, stack: str) -> None:
    """Raise UpdateUnfinished where another engine runs the program in `root` after an update of this one broke off.

    One that is under way may end meanwhile. This engine itself goes on where it stopped.
    """
    if isinstance(SETTINGS.monitor, Monitor):
        return
    try:
        project = load_project(root)
    except EngineError:  # a backend that this engine doesn't know has no journal of it
        return
    store, end = Store(project.backend, project.name, stack), monotonic() + _LONGEST
    while store.is_unfinished() and monotonic() < end:
        sleep(0.1)
    if store.is_unfinished():
        raise UpdateUnfinished(
            f"an update of {stack} by `locallb` broke off or is under way;"
            " run `locallb up`, which goes on where it stopped, then this again;"
            " for a program in another language run `locallb destroy` first"
        )
