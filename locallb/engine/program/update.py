"""One run of a program beside the core: it has a thread of its own, the core works in that of the caller."""

from concurrent.futures import Future
from contextvars import copy_context
from threading import Thread

from locallb.engine.core.core import Core
from locallb.engine.core.desired_index import Goals
from locallb.engine.core.events import Severity
from locallb.engine.core.executor import ThreadExecutor
from locallb.engine.core.reporting import Reporter
from locallb.engine.core.session import LAST_WAIT
from locallb.engine.program.in_process import Failure, Program, Setting, run_program
from locallb.engine.program.monitor import EngineService, Monitor
from locallb.engine.program.registrar import Registrar
from locallb.engine.state.errors import Cancelled
from locallb.engine.state.values import Properties


class Update:
    """Registers what a program declares."""

    def __init__(self, program: Program, setting: Setting, reporter: Reporter) -> None:
        self._program = program
        self._setting = setting
        self._reporter = reporter
        self.outputs: Properties = {}
        """The Stack's, as far as they are known."""

    def register(self, core: Core, goals: Goals, executor: ThreadExecutor) -> bool:
        """Let the core work until the program has ended; report its failures, and return whether there are none.

        Raises Cancelled.
        """
        registrar = Registrar(self._setting.project, self._setting.stack, core, goals, executor.post)
        monitor = Monitor(registrar)
        ended: Future[Failure | None] = Future()

        def run() -> None:
            try:
                service = EngineService(self._reporter)
                ended.set_result(run_program(self._program, self._setting, monitor, service))
            except BaseException as error:  # noqa: BLE001 raised again in the core's thread
                ended.set_exception(error)
            executor.post(lambda: None)

        def is_over() -> bool:
            if executor.has_news:
                return False
            registrar.answer()
            return ended.done() and core.is_at_rest

        thread = Thread(target=copy_context().run, args=(run,), name="program", daemon=True)
        thread.start()
        try:
            core.run(is_over)
        except Exception:
            registrar.close()
            thread.join(LAST_WAIT)
            raise
        finally:
            registrar.close()
            self.outputs = registrar.outputs
        is_whole = self._report(ended.result(), monitor)
        registrar.enter_outputs(is_whole=is_whole)
        return is_whole

    def _report(self, failure: Failure | None, monitor: Monitor) -> bool:
        for error in monitor.errors:
            if isinstance(error, Cancelled):
                raise error
        for message in dict.fromkeys(str(error) for error in monitor.errors):
            self._reporter.log(Severity.ERROR, message)
        if failure and not monitor.errors:
            self._reporter.log(Severity.ERROR, failure.message, debug=failure.debug)
        return failure is None and not monitor.errors
