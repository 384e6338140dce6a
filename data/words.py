"""Words of the keys in `lines` documents. Held-out nouns occur in no training document."""

_ADJECTIVES = """
    able amber ancient autumn bitter black blue bold brave brief bright bronze calm careful cheap
    clean clear clever cloudy cold common cool copper crisp curious damp dark deep direct distant
    double dry dull eager early easy empty equal famous fast final fine firm flat fresh full gentle
    giant glad golden good grand gray great green happy hard heavy hidden high hollow honest hot
    humble icy ideal idle iron keen kind large late lazy light little local lonely long loose loud
    low lucky main mellow merry mild modern narrow neat new noble noisy odd old open orange pale
    patient plain polite proud pure purple quick quiet rapid rare raw red rich rough round royal
    rusty safe sandy secret sharp short silent silver simple slow small smooth soft solid
"""

_NOUNS = """
    acorn anchor apple arrow autumn badge baker barrel basket beach bell bird board boat book bottle
    bridge brook brush bucket button cabin camel candle canyon carpet castle cat chain chair cherry
    circle city clock cloud coat coin copper corner cotton crane creek crown cup curtain desert desk
    dinner doctor dog door dragon drum eagle engine farm feather fence field finger fire fish flag
    flower forest fork fox frog garden gate ghost glass glove goat grain grape hammer harbor hat
    hawk hill honey horse house island jacket jungle kettle key king kitchen ladder lake lamp leaf
    lemon letter lion map market meadow melon mirror moon morning mountain needle nest night ocean
"""

_HELD_OUT_NOUNS = """
    olive orchard otter oven owl paint palace paper park path peach pencil pepper piano picture pig
    pilot pirate plate pocket poet pond potato prince puzzle queen rabbit rain ribbon rice ring
    river road robot rocket roof room rope rose sailor salt school seed shadow sheep shell ship shoe
    shop shore signal sister sky snow song spider spoon spring square stable star station stone
    storm story street sugar summer sun sword table tailor tea temple tent thread thunder tiger
    tower town train tree turtle valley vase violin wagon wall water wheel whistle wind window wing
    winter wolf wool yard
"""

ADJECTIVES = tuple(_ADJECTIVES.split())
NOUNS = tuple(_NOUNS.split())
HELD_OUT_NOUNS = tuple(_HELD_OUT_NOUNS.split())
