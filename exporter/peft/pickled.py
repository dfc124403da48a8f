"""Reading `adapter_model.bin`: the only module of the gate that imports torch, and only when the caller allows it.

`torch.load(weights_only=True)` builds tensors and plain containers and runs nothing else; everything else in the file
is an error.
"""

from __future__ import annotations

from pathlib import Path

from exporter.peft.tensors import Stored
from registry.errors import FormatError, Unavailable


def read_pickle(file: Path) -> dict[str, Stored]:
    """The tensors of a pickled state dict. Raises FormatError for anything else, Unavailable without torch."""
    try:
        import torch  # noqa: PLC0415 - see the module's docstring
    except ImportError:
        raise Unavailable(f"{file.name}: reading a pickle needs torch", hint="pip install 'ptdock[export]'") from None
    try:
        table = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch.load raises what the pickle makes it raise
        raise FormatError(f"{file.name}: not a file of plain weights: {str(error).splitlines()[0]}") from None
    if not isinstance(table, dict):
        raise FormatError(f"{file.name}: not a state dict")
    return {str(name): _stored(str(name), tensor, file) for name, tensor in table.items()}


def _stored(name: str, tensor: object, file: Path) -> Stored:
    import torch  # noqa: PLC0415

    spelled = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        raise FormatError(f"{file.name}: {name!r} is not a plain tensor")
    dtype = spelled.get(tensor.dtype)
    if dtype is None:
        raise FormatError(f"{file.name}: {name!r} has the dtype {tensor.dtype}")
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return Stored(name, dtype, tuple(tensor.shape), memoryview(data))
