"""The world as text, for language models.

    from assay.crafter.text.forms import full_text, parse
    from assay.crafter.text.observation import observe
    print(full_text(observe(world.view())))

The text contains only what a `View` and the result of the last step contain. Rules are worded
from the data in `rules`.
"""
