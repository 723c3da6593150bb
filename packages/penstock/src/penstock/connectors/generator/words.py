"""The words of `string` fields and `{word}`: lower-case letters only, so they fit into JSON as they are."""

from __future__ import annotations

# Changing this changes every record that has a word in it: raise VERSION in `source.py` with it.
WORDS = (
    "acorn amber anchor apple apron arrow aspen atlas autumn badge bagel bamboo banjo barley basin basket beacon berry birch"
    " biscuit blanket blossom bottle boulder branch breeze brick bridge bronze brook bucket butter button cabin cactus camel"
    " candle canoe canvas canyon carpet carrot castle cedar cellar cherry chimney cinder circle citrus cliff clover cobalt"
    " comet copper coral cotton cradle crane crayon creek cricket crystal current dahlia daisy desert dolphin dragon drizzle"
    " dune eagle echo elbow ember engine falcon feather fennel fern fiddle field flame flint flute forest fossil fountain"
    " fox galaxy garden garlic gecko ginger glacier goblet granite grape gravel grove hammer harbor harvest hazel hedge helmet"
    " heron hill honey hornet island ivory ivy jacket jasmine jelly jewel jungle juniper kernel kettle kite ladder lagoon"
    " lantern lark laurel lemon lentil lichen lilac lily linen lizard lobster lotus magnet maple marble meadow melon mint"
    " mirror mitten mosaic moss mountain muffin nectar needle nest nickel nutmeg oak oasis ocean olive onion orange orchard"
    " orchid otter owl oyster paddle palm panther paper parrot pasture peach pebble pepper pillow pine planet plum pocket"
    " pond poppy prairie pumpkin quartz quill rabbit raven reed ribbon ridge river robin rocket rope rose saddle saffron"
    " sand sapling satin scarf shadow shell silver sparrow spice spring spruce squash stone storm summit sunset swan tangle"
    " teapot thistle thunder timber tulip tunnel turnip valley velvet violet walnut willow window winter zephyr"
)
