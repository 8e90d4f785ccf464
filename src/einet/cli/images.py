"""``einet images``: models of images, from your own folder or a public set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from einet.cli.console import MOST, plain_errors
from einet.data.images.limits import MAX_PIXELS

__all__ = ["app"]

app = typer.Typer(
    name="images",
    help="Generative models of images: train, sample, fill in covered parts, evaluate.",
    no_args_is_help=True,
)

# The largest that torch's generators take.
_LAST_SEED = 2**63 - 1

Model = Annotated[Path, typer.Argument(help="A model that 'einet images train' wrote.")]
Data = Annotated[Path, typer.Argument(help="A folder or zip archive of images, or a public set.")]
Kind = Annotated[str, typer.Option(help="auto, folder, idx (MNIST), svhn, celeba or npy.")]
Size = Annotated[str | None, typer.Option(help="HEIGHTxWIDTH to resize image files to.")]
Crop = Annotated[str | None, typer.Option(help="HEIGHTxWIDTH of the centre to cut out first.")]
Limit = Annotated[
    int | None, typer.Option(min=1, max=MOST, help="Use the first so many images only.")
]
Seed = Annotated[int, typer.Option(min=0, max=_LAST_SEED, help="Seed of everything random.")]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")
]
Workers = Annotated[
    int,
    typer.Option(
        min=1,
        max=MOST,
        help="Processes that learn together, each with its share of the cores or a GPU of its own.",
    ),
]
AsGrey = Annotated[
    bool, typer.Option("--grey", help="Turn colours grey for a model of grey images.")
]
Leaves = Annotated[str, typer.Option(help="sample: draw pixels; mean: means of leaves, no noise.")]
MaxPixels = Annotated[
    int,
    typer.Option(min=1, max=_LAST_SEED, help="Refuse images that declare more pixels than this."),
]


@app.command()
def train(
    data: Data,
    output: Annotated[Path, typer.Option(help="The file for the model.")] = Path("model.einet"),
    kind: Kind = "auto",
    split: Annotated[str, typer.Option(help="The part of a public set.")] = "train",
    size: Size = None,
    crop: Crop = None,
    grey: Annotated[
        bool | None,
        typer.Option(
            "--grey/--no-grey",
            help="Read image files as grey, or with colours; by default grey if all of them are.",
        ),
    ] = None,
    limit: Limit = None,
    max_pixels: MaxPixels = MAX_PIXELS,
    force: Annotated[bool, typer.Option("--force", help="Replace OUTPUT if it exists.")] = False,
    recipe: Annotated[
        str,
        typer.Option(
            help="default, or paper: 100 images for each cluster, variances of at most 0.01, a "
            "constant λ, no prior, no images held out."
        ),
    ] = "default",
    valid_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the images to hold out and choose by, 0 for none: a tenth, 5000 at most."
        ),
    ] = None,
    clusters: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="By default one for each 500 images, at most 100; 1 for a tree.",
        ),
    ] = None,
    structure: Annotated[
        str,
        typer.Option(help="poon-domingos, or chow-liu: a tree that is learnt from the images."),
    ] = "poon-domingos",
    num_sums: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="K, the sums in each region: 40, or 64 for a tree."),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(help="Δ, the step between cuts; a quarter of the width. Or several: 16,8,4."),
    ] = None,
    axes: Annotated[str, typer.Option(help="vertical or both: which cuts.")] = "vertical",
    family: Annotated[str, typer.Option(help="gaussian, binomial or categorical.")] = "gaussian",
    epochs: Annotated[
        int, typer.Option(min=1, max=MOST, help="Passes of each cluster over its rows.")
    ] = 25,
    batch_size: Annotated[int, typer.Option(min=1, max=MOST, help="Images in a mini-batch.")] = 500,
    colour: Annotated[
        str,
        typer.Option(help="Variables of a pixel: rgb, or ycocg, brightness and two differences."),
    ] = "rgb",
    step_size: Annotated[
        float | None,
        typer.Option(
            help="λ of stochastic EM, at most 1; by default it falls from 0.5 to 0.05, for a tree "
            "from 1 to 0.01."
        ),
    ] = None,
    last_step_size: Annotated[
        float | None, typer.Option(help="λ falls to this in the course of training.")
    ] = None,
    prior: Annotated[
        float | None,
        typer.Option(
            min=0, help="Pseudo-count of a prior on parameters, 0 for none: 1, or 0.1 for a tree."
        ),
    ] = None,
    refine: Annotated[
        int,
        typer.Option(min=0, max=MOST, help="Epochs of EM on the mixture as a whole, afterwards."),
    ] = 0,
    precision: Annotated[str, typer.Option(help="On a GPU: highest, high or medium.")] = "highest",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="The folder for checkpoints, by default OUTPUT.checkpoint; gone once the model is "
            "there."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    seed: Seed = 0,
    device: Device = None,
    workers: Workers = 1,
) -> None:
    """Train a mixture of Einets, one for each cluster of images.

    Some images are held out: every Einet ends up as it was after its best epoch on those of its
    cluster. How likely training and held-out images are is printed at the end.

    With --structure chow-liu it is a single Einet whose structure is learnt from the images: mostly
    the better likelihood. With --recipe paper everything is done as in the paper.
    """
    from einet.cli import image_training

    with plain_errors():
        checkpoint = checkpoint or output.with_name(f"{output.name}.checkpoint")
        image_training.check_output(output, force)
        image_training.check_files(data, output, checkpoint)
        chosen = image_training.recipe_of(
            recipe,
            structure,
            delta,
            step_size,
            last_step_size,
            num_sums=num_sums,
            axes=axes,
            family=family,
            prior=prior,
        )
        channels = None if grey is None else 1 if grey else 3
        images = (data, kind, split, size, crop, channels, limit, max_pixels)
        training = image_training.Training(
            output=output,
            colour=colour,
            clusters=clusters,
            epochs=epochs,
            batch_size=batch_size,
            valid_share=0.0 if valid_share is None and recipe == "paper" else valid_share,
            refine=refine,
            precision=precision,
            checkpoint=checkpoint,
            resume=resume,
            seed=seed,
            device=device,
        )
        image_training.train_by(workers, images, chosen, training)


@app.command()
def sample(
    model: Model,
    output: Annotated[Path, typer.Option(help="The PNG file.")] = Path("samples.png"),
    number: Annotated[int, typer.Option(min=1, max=MOST, help="How many.")] = 25,
    leaves: Leaves = "sample",
    columns: Annotated[int | None, typer.Option(min=1, max=MOST, help="Images in a row.")] = None,
    zoom: Annotated[int, typer.Option(min=1, max=MOST, help="Enlarge each pixel.")] = 1,
    max_pixels: Annotated[
        int, typer.Option(min=1, max=_LAST_SEED, help="Refuse to draw a larger picture.")
    ] = MAX_PIXELS,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Draw images from a model, side by side in one picture."""
    from einet.cli import image_commands

    with plain_errors():
        image_commands.sample(
            model, output, number, leaves, columns, zoom, seed, device, max_pixels
        )


@app.command()
def inpaint(
    model: Model,
    image: Annotated[Path, typer.Argument(help="An image of the model's size.")],
    mask: Annotated[
        Path | None, typer.Option(help="An image of that size, white where covered.")
    ] = None,
    box: Annotated[
        str | None, typer.Option(help="top,left,height,width of what is covered.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder for the pictures.")] = Path("inpainted"),
    samples: Annotated[
        int, typer.Option(min=1, max=MOST, help="How many conditional samples.")
    ] = 8,
    leaves: Leaves = "sample",
    resize: Annotated[bool, typer.Option("--resize", help="Resize image and mask to fit.")] = False,
    grey: AsGrey = False,
    max_pixels: MaxPixels = MAX_PIXELS,
    zoom: Annotated[
        int, typer.Option(min=1, max=MOST, help="Enlarge each pixel of the overview.")
    ] = 4,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Fill in a covered part of an image: conditional samples, their mean and deviation.

    Written are covered.png, sample-1.png, …, mean.png, deviation.png and all of them in
    overview.png. The mean and the deviation are exact, not those of the samples. In deviation.png
    white is 127.5 grey values, the most that there can be.
    """
    from einet.cli import image_commands

    with plain_errors():
        if (mask is None) == (box is None):
            raise ValueError("give what is covered, as --mask or as --box, and not both")
        image_commands.check_pictures(output, samples, model=model, image=image, mask=mask)
        opened = image_commands.open_model(model, device)
        image_commands.check_overview(opened, output, samples, zoom, max_pixels)
        row, covered = image_commands.read_covered(
            opened, image, mask, box, resize, grey, max_pixels
        )
        image_commands.inpaint(opened, row, covered, output, samples, leaves, zoom, seed)


@app.command()
def evaluate(
    model: Model,
    data: Data,
    kind: Kind = "auto",
    split: Annotated[str, typer.Option(help="The part of a public set.")] = "test",
    size: Size = None,
    crop: Crop = None,
    grey: AsGrey = False,
    limit: Limit = None,
    max_pixels: MaxPixels = MAX_PIXELS,
    draws: Annotated[
        int, typer.Option(min=1, max=MOST, help="Draws of noise, if there must be any.")
    ] = 4,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Measure the log-likelihood of images, in nats and in bits per dimension.

    Nats are of the density on pixels/255 (or of the grey values, if leaves count those). Bits per
    dimension are of the 256 grey values always: densities are integrated over them first.
    """
    from einet.cli import image_commands

    with plain_errors():
        opened = image_commands.open_model(model, device)
        images = image_commands.open_set_for(
            opened, data, kind, split, size, crop, grey, limit, max_pixels
        )
        image_commands.evaluate(opened, images, draws, seed)
