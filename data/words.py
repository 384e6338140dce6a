"""Words and names of documents made on the spot.

Keys of `lines` documents are adjective-noun; held-out nouns occur in no training document. Names
are those of the phone book.
"""

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

_FIRST_NAMES = """
    Adam Agnes Alan Alice Amy Andrew Ann Arthur Barbara Ben Betty Brian Carl Carol Cathy Charles
    Clara Colin Craig Daisy Daniel David Dean Diana Donald Dora Doris Duncan Earl Edith Edward
    Eileen Ellen Emily Emma Eric Esther Eva Felix Fiona Flora Frank Fred Gary George Gerald Gina
    Gloria Gordon Grace Greta Harold Harry Hazel Helen Henry Holly Hugh Ian Ida Irene Iris Isaac
    Ivan Jack James Jane Janet Jason Jean Joan John Joyce Judy Julia Karen Keith Kevin Kim Larry
    Laura Leo Leon Linda Lisa Louis Lucy Luke Lynn Mabel Marie Mark Martha Martin Mary Max Megan
    Michael Mona Nancy Neil Nina Nora Norman Olga Oscar Owen Pamela Paul Peggy Peter Philip Rachel
    Ralph Ray Rita Robert Roger Rosa Ruth Sally Sam Sarah Simon Sofia Stella Steve Susan Sylvia
    Teresa Thomas Tina Tom Vera Victor Viola Walter Wanda William Yvonne
"""

_LAST_NAMES = """
    Abbott Adams Allen Archer Atkins Bailey Baker Barker Barnes Barton Bell Bennett Berry Bishop
    Blake Boyd Bradley Brooks Brown Bryant Burke Burns Butler Byrne Carey Carter Chapman Clark
    Cole Collins Cooper Cox Craft Cross Curtis Dalton Davis Dawson Dixon Doyle Drake Duffy Dunn
    Eaton Ellis Evans Farrell Fisher Fleming Fletcher Ford Foster Fowler Fox Freeman Gardner
    Gibson Gilbert Graham Grant Gray Green Griffin Hale Hall Harper Harris Hart Hayes Hicks Hill
    Hobbs Holmes Howard Hudson Hughes Hunt Ingram Irwin Jackson Jenkins Johnson Jones Jordan Kane
    Keller Kelly Kennedy Kerr Knight Lambert Lane Lawson Lewis Lloyd Logan Long Lowe Lynch Marsh
    Mason Meyer Miller Moore Morgan Morris Murphy Nash Nelson Newton Norris Nolan Oliver Osborne
    Page Palmer Parker Payne Perry Porter Potter Price Quinn Reed Reid Reynolds Rhodes Riley
    Roberts Rogers Ross Russell Ryan Sanders Shaw Sims Smith Snow Spencer Stewart Stone Sutton
    Taylor Thorne Todd Tucker Turner Vance Vaughn Wade Walker Wallace Walsh Ward Watson Webb Wells
    West White Wilson Wood Wright Wyatt York Young
"""

ADJECTIVES = tuple(_ADJECTIVES.split())
NOUNS = tuple(_NOUNS.split())
HELD_OUT_NOUNS = tuple(_HELD_OUT_NOUNS.split())
FIRST_NAMES = tuple(_FIRST_NAMES.split())
LAST_NAMES = tuple(_LAST_NAMES.split())
