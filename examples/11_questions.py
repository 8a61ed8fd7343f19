"""Ask about pictures: exactly stored, or stored for a question in other words, once that has proved right."""

import random

from PIL import Image

from mmcache import Cache, Prompt, Semantic

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 200)}
WORDINGS = ["What colour is the square?", "Which colour is the square?", "What colour has the square?"]


def draw(number: int) -> tuple[str, Image.Image]:
    """A colour, and a picture with a square of it."""
    rng = random.Random(number)
    name = rng.choice(sorted(COLOURS))
    picture = Image.effect_noise((8, 6), 80).convert("RGB").resize((160, 120))
    picture.paste(COLOURS[name], (rng.randrange(20, 60), rng.randrange(20, 40), 120, 100))
    return name, picture


def answer(prompt: Prompt) -> str:
    """Stands for a vision-language model; counts its calls."""
    calls.append(prompt.text)
    red, green, blue = prompt.pictures[0].getpixel((90, 70))
    return "red" if red > green and red > blue else "green" if green > blue else "blue"


calls: list[str] = []
wrong = near = 0
with Cache(semantic=Semantic(max_error=0.1)) as cache:  # Semantic(text=…, embedder=…) takes your embedding model
    for number in range(250):
        colour, picture = draw(number)
        for wording in random.Random(number).sample(WORDINGS, 3):
            reply = cache.ask(Prompt(wording, pictures=[picture]), answer, model="my-vlm 1.0")
            near += reply.source == "near"
            wrong += reply.source == "near" and reply.value != colour
    again = cache.ask(Prompt(WORDINGS[0], pictures=[picture]), answer, model="my-vlm 1.0")
    print(f"{near} of 750 questions got a near answer, {wrong} of them wrong; the model was called {len(calls)} times")
    print(again.source, again.decision, again.stored_text)
    print(cache.meaning.report()[0])
