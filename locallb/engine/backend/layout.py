"""Where one stack's files lie in a file backend: those of the official command line, and the journal beside them."""

from pathlib import Path

from msgspec import Struct


class Layout(Struct, frozen=True):
    """The places of one stack's files in `backend`, the folder that holds `.pulumi`."""

    backend: Path
    project: str
    stack: str

    @property
    def name(self) -> str:
        """The stack's qualified name."""
        return f"organization/{self.project}/{self.stack}"

    @property
    def state(self) -> Path:
        """The state file."""
        return self._base / "stacks" / self.project / f"{self.stack}.json"

    @property
    def meta(self) -> Path:
        """The backend's own file."""
        return self._base / "meta.yaml"

    @property
    def journal(self) -> Path:
        """The journal of the update under way."""
        return self._base / "journals" / self.project / f"{self.stack}.jsonl"

    @property
    def guard(self) -> Path:
        """The file of the operating system's lock."""
        return self._base / "journals" / self.project / f"{self.stack}.lock"

    @property
    def backups(self) -> Path:
        """The folder of the backups."""
        return self._base / "backups" / self.project / self.stack

    @property
    def locks(self) -> Path:
        """The folder of the official command line's locks."""
        return self._base / "locks" / self.name

    @property
    def _base(self) -> Path:
        return self.backend / ".pulumi"
