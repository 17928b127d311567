"""The example notebook runs from its first cell to its last, and shows what its text says."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "what_if.ipynb"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the kernel's own packages
def test_the_notebook_runs() -> None:
    """In a kernel of its own; every code cell ends without an error, and the frames have the figures they show."""
    nbformat = pytest.importorskip("nbformat", reason="notebooks are run where nbclient and ipykernel are installed")
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run where nbclient and ipykernel are installed")
    pytest.importorskip("ipykernel", reason="notebooks are run where nbclient and ipykernel are installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "OPTIMAL" in shown
    assert "cost_usd" in shown
    assert "419 unexpected interruptions" in shown


def test_the_notebook_holds_no_outputs() -> None:
    """What a run shows depends on the predictions of the day: the file has the code alone."""
    import json

    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 6
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
