"""Strings that are hard on a tokenizer: every class of the split expression and every border
between two of them, scripts, combining marks, emoji, white space, code, and random mixtures of
all that.

All randomness comes from the generator that is passed in.
"""

import unicodedata

CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]

PHRASES = [
    "The quick brown fox jumps over the lazy dog.",
    "don't can't I'll we've they're he'd I'm it's",
    "DON'T CAN'T I'LL WE'VE THEY'RE HE'D I'M IT'S rock'n'roll 'tis ''s 'S 'sS",
    "it'\u017f we'Re we'rE 'L'l 'lL 'x 'r 'v 'l '",
    "价格是三千五百元，请在明天之前回复。",
    "日本語のテキストとカタカナ、ひらがな。が か\u3099 ハ\u309a",
    "한국어 문장 입니다 \u1112\u1161\u11ab\u1100\u1173\u11af \uac00\u11a7 \uac00\u11a8 \u1100\u1161\u11a7x",
    "Привет, мир! Съешь ещё этих мягких французских булок",
    "Γειά σου Κόσμε, Ἀρχιμήδης",
    "שָׁלוֹם עוֹלָם",
    "السَّلامُ عَلَيْكُمْ ١٢٣٤",
    "नमस्ते दुनिया क़ख़ग़ १२३",
    "สวัสดีชาวโลก ก็ดี ๑๒๓",
    "Tiếng Việt có dấu: Ti\u0065\u0302\u0301ng Vi\u0065\u0323\u0302t",
    "cafe\u0301 café naïve nai\u0308ve Å A\u030a \u212b \u2126 \ufb01",
    "q\u0307\u0323 q\u0323\u0307 d\u0307\u0323 a\u0315\u0300\u05ae\u0300b",
    "x\u0338 =\u0338 \u2260 <\u0338 \u226e \u1e9b\u0323 \u0f73\u0f71",
    "\U0001d15e\U0001d165 \U0001109a \U00011099\U000110ba",
    "👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☃️ 1️⃣ ❤",
    "½ ² ³ Ⅷ ٣ ३ ৩ ① ⑳ 万 〇 ㊿ 𝟘𝟙 ௧௨",
    "12345 3.14159 1,000,000 0x1F 1e-9 v2.0.1 2026-11-29",
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u0610-\u061a\u064b-\u065f"
    "\u0816-\u0819\u0900-\u0903"
    "\u093a-\u093c\u1ab0-\u1abd\u1dc0-\u1dff\u20d0-\u20dc\ufe00-\ufe0f]",
    "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg",
    "\u0000\u0001\u0002\u0007\u0008\u001b[31mred\u001b[0m\u007f\u0080\u009f",
    "tab\tnewline\ncarriage\rcrlf\r\nvt\vff\fnel\u0085ls\u2028ps\u2029nbsp\u00a0end",
    "   leading", "trailing   ", "a  b   c    d", "  \n  \n\n \r\n\t\n x", "\n\n\n", "   ", " \n",
    "\n ", "\r\r\n\n\r", " \u3000 \u2003\u2009\u00a0 x", "!\n\n", " !\r\n x", ".\n \n", "?!\r\r\n",
    "def f(x: int) -> str:\n    return f'{x!r:>10}'  # comment\n\n\nclass A:\n\tpass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; }\r\n#include <vector>\r\n",
    "<div class=\"x\">&nbsp;&lt;</div><!-- c -->\n{\"k\": [1, 2.5e3, null, true]}\n",
    "https://example.org/a/b?c=d&e=%20#f user@example.org C:\\dir\\file.txt",
    "SELECT * FROM t WHERE a='x''y' AND b<>3;--end", "$x = @{'a'=1}; `ls` ~/.rc | grep -v '^#'",
    "E=mc² ∑∫√∞≠≤≥±×÷ αβγ ∀x∈ℝ", "“quoted” ‘single’ — dash – … • · ¿¡ «»",
    "\ufffd\ufffe\uffff\U0010ffff\ue000\U000f0000", "\u0378\u0530\U000e0080", "",
]

# Characters of each class of the expression, common and odd ones.
CLASSES = {
    "letter": "aZé漢ـかǅʰª\U00020000\U0001e922\u3164",
    "mark": "\u0301\u0323\u0903\u20dd\u064b\u3099\ufe0f\U000e0100\u05b0",
    "number": "0 9٣½Ⅷ²〇\U0001d7d8".replace(" ", ""),
    "newline": "\r\n",
    "space": " \t\u00a0\u3000\u0085\u2028\v\f\u1680\u200a",
    "other": "!'._-$^€’\u200d👍\u0000\u00ad\ue000\u0378\u180e\u200b",
    "contraction": ["'s", "'S", "'\u017f", "'re", "'rE", "'LL", "'d", "'"],
}


def by_category():
    """Code points of each general category, surrogates left out."""
    found = {}
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category != "Cs":
            found.setdefault(category, []).append(code)
    return found


def class_borders():
    """Every sequence of three classes, with the first members of each."""
    names = list(CLASSES)
    for a in names:
        for b in names:
            for c in names:
                yield CLASSES[a][0] + CLASSES[b][0] + CLASSES[c][0]
                yield CLASSES[a][-1] + CLASSES[b][1] + CLASSES[c][-1] + CLASSES[a][1]


class Random:
    """Random strings of several sorts."""

    def __init__(self, generator, sources):
        self.generator = generator
        self.sources = sources
        self.categories = by_category()
        self.names = sorted(self.categories)
        self.marks = [c for n in ("Mn", "Mc", "Me") for c in self.categories[n]]

    def code_point(self):
        """A character of a category drawn evenly, so that small categories are not rare."""
        return chr(self.generator.choice(self.categories[self.generator.choice(self.names)]))

    def from_categories(self):
        return "".join(self.code_point() for _ in range(self.generator.randint(1, 12)))

    def from_classes(self):
        names = list(CLASSES)
        count = self.generator.randint(1, 16)
        return "".join(self.generator.choice(CLASSES[self.generator.choice(names)])
                       for _ in range(count))

    def marked(self):
        """Letters with piles of marks in any order."""
        parts = []
        for _ in range(self.generator.randint(1, 4)):
            parts.append(self.generator.choice("aeodqAEIO가かнलا \n."))
            for _ in range(self.generator.randint(0, 4)):
                parts.append(chr(self.generator.choice(self.marks)))
        return "".join(parts)

    def from_phrases(self):
        parts = []
        for _ in range(self.generator.randint(1, 3)):
            phrase = self.generator.choice(PHRASES)
            begin = self.generator.randint(0, len(phrase))
            parts.append(phrase[begin:begin + self.generator.randint(1, 20)])
        return self.generator.choice(["", " ", "\n", "'s"]).join(parts)

    def from_sources(self):
        source = self.generator.choice(self.sources)
        begin = self.generator.randint(0, max(0, len(source) - 1))
        return source[begin:begin + self.generator.randint(1, 60)]

    def repeated(self):
        """One short thing many times: long pieces and long runs."""
        unit = self.generator.choice([self.from_classes, self.code_point, self.marked])()[:3]
        return unit * self.generator.randint(2, 30)

    def decomposed(self):
        form = self.generator.choice(["NFD", "NFC", "NFKD"])
        return unicodedata.normalize(form, self.from_phrases())

    def string(self):
        sort = self.generator.choice([
            self.from_categories, self.from_classes, self.marked, self.from_phrases,
            self.from_sources, self.repeated, self.decomposed])
        return sort()
