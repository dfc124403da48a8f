"""Reading `adapter_model.bin`: the only module of the gate that imports torch, and only when the caller allows it.

`torch.load(weights_only=True)` builds tensors and plain containers and runs nothing else; everything else in the file
is an error.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from exporter.peft.tensors import Stored
from registry.errors import FormatError, Unavailable

HINT = "save it as safetensors: PEFT's save_pretrained does"


def read_pickle(file: Path) -> dict[str, Stored]:
    """The tensors of a pickled state dict. Raises FormatError for anything else, Unavailable without torch.

    No more memory is taken than a few times the file: torch.save compresses nothing, and no tensor of an adapter
    repeats its bytes.
    """
    try:
        import torch  # noqa: PLC0415 - see the module's docstring
    except ImportError:
        raise Unavailable(f"{file.name}: reading a pickle needs torch", hint="pip install 'ptdock[export]'") from None
    try:
        if _unpacked(file) > file.stat().st_size:
            raise FormatError("it is compressed, which torch.save never does")  # noqa: TRY301
        table = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch.load raises what the pickle makes it raise
        raise FormatError(f"{file.name}: not a file of plain weights{_reason(error)}", hint=HINT) from None
    if not isinstance(table, dict):
        raise FormatError(f"{file.name}: not a state dict", hint=HINT)
    plain = [each for each in table.values() if isinstance(each, torch.Tensor) and each.layout == torch.strided]
    if sum(each.nbytes for each in plain if not each.is_contiguous()) > file.stat().st_size:
        raise FormatError(f"{file.name}: its tensors repeat their bytes", hint=HINT)
    return {str(name): _stored(str(name), tensor, file) for name, tensor in table.items()}


def _unpacked(file: Path) -> int:
    """Bytes that a zip archive says it holds; 0 for the format before zip, which cannot compress."""
    if not zipfile.is_zipfile(file):
        return 0
    with zipfile.ZipFile(file) as archive:
        return sum(member.file_size for member in archive.infolist())


def _reason(error: Exception) -> str:
    """What the file asked for. Torch's own text goes on to advise to read it without protection."""
    if isinstance(error, FormatError):
        return f": {error.message}"
    asked = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f": it asks for {asked[1]}" if asked else ""


def _stored(name: str, tensor: object, file: Path) -> Stored:
    import torch  # noqa: PLC0415

    spelled = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise FormatError(f"{file.name}: {name!r} is not a plain tensor", hint=HINT)
    dtype = spelled.get(tensor.dtype)
    if dtype is None:
        raise FormatError(f"{file.name}: {name!r} has the dtype {tensor.dtype}", hint=HINT)
    data = tensor.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return Stored(name, dtype, tuple(tensor.shape), memoryview(data))
