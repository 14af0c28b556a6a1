from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A consumer's identity in its group, for :meth:`Transaction.send_offsets`."""

    group_id: str
    generation_id: int = -1
    """Generation of the group, or epoch of the member; -1 without a member."""
    member_id: str = ""
    group_instance_id: str | None = None
