"""The world in words, for models that read.

    from assay.crafter.text.forms import full_text, parse
    from assay.crafter.text.observation import observe
    print(full_text(observe(world.view())))

Holds no more than a `View` and the result of the last step do. Rules are worded from the
data in `rules`; nothing here knows how the world works.
"""
