"""Pre-training from Python: `bertworks.pretrain`. It resolves its arguments as `bertworks pretrain` does."""

import sys
from pathlib import Path
from typing import Any

from ..checkpoint.folder import read_config
from ..checkpoint.locate import ModelLike
from ..checkpoint.start import start_folder
from ..config import find_recipe, flags_of_fields, load_recipe, with_fields
from ..files import InputError
from ..reporting.arguments import argument_names, hinted
from ..reporting.results import RunResults
from ..training.config import without_late_snapshots
from ..training.run import OnStep, out_folder, refuse_other_folder, watch_of
from .recipe import PretrainConfig
from .run import pretrain as run_pretraining


@hinted
def pretrain(
    recipe: PretrainConfig | Path | str,
    corpus: Path | str,
    out: Path | str,
    *,
    init: ModelLike | None = None,
    on_step: OnStep | None = None,
    quiet: bool = False,
    **fields: Any,
) -> RunResults:
    """Pre-train an encoder on a corpus store, and return the results. Call it again to resume.

        bertworks.pretrain("cpu", corpus="store", out="runs/first", loop={"steps": 1000}, optim={"lr": 1e-3})

    recipe: its name (`bertworks recipes` lists them), a .toml file, or a PretrainConfig. corpus: store made by
    `bertworks corpus build`. out: run folder to write. init: model folder, run folder or loaded model whose weights the
    run starts from, with its shape in place of the recipe's; none: random weights. Fields of the recipe are further
    arguments; a table is a dictionary, as in TOML. on_step: called with each record of the log; when it returns True,
    the run stops after that update and is saved, without a model yet. quiet: print nothing.

    Raises InputError if recipe, store and `init` do not fit together, or if `out` belongs to another run.
    """
    with argument_names():
        folder, watch = out_folder(out), watch_of(on_step)
        refuse_other_folder(folder)
        if isinstance(fields.get("model"), (str, Path)):
            raise InputError(f"model = {str(fields['model'])!r}; expected a table of the model's fields; "
                             "the folder whose weights the run starts from is the argument init")  # fmt: skip
        given = flags_of_fields(fields)
        start = None if init is None else start_folder(init, folder)
        if isinstance(recipe, PretrainConfig):
            base = recipe
        else:
            base = load_recipe(find_recipe(str(recipe), "pretrain"), PretrainConfig)
            shape = {} if start is None else vars(read_config(start)[0])
            fields = {f"model.{name}": value for name, value in shape.items()} | fields
        if "--loop.steps" in given and "--snapshots" not in given:
            steps = fields.get("loop.steps") or dict(fields["loop"])["steps"]
            base, left_out = without_late_snapshots(base, int(steps))
            if left_out and not quiet:
                print(left_out, file=sys.stderr)
        config = with_fields(base, fields, pretrain)
        results = run_pretraining(config, Path(corpus), folder, start, quiet, watch)
        return RunResults(folder, results or {})
