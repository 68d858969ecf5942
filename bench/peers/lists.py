"""The parameter lists of models, by their shapes; no weights are loaded."""


def gpt2():
    width, layers = 768, 12
    counts = [50257 * width, 1024 * width]
    for _ in range(layers):
        counts += [width, width, width * 3 * width, 3 * width, width * width,
                   width, width, width, width * 4 * width, 4 * width,
                   4 * width * width, width]
    return counts + [width, width]


def bert():
    width, layers = 768, 12
    counts = [30522 * width, 512 * width, 2 * width, width, width]
    for _ in range(layers):
        counts += 4 * [width * width, width] + [width, width]
        counts += [4 * width * width, 4 * width, 4 * width * width, width]
        counts += [width, width]
    return counts + [width * width, width]  # the pooler


def resnet50():
    counts = [64 * 3 * 49, 64, 64]
    inputs = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            counts += [inputs * width, width, width]
            counts += [9 * width * width, width, width]
            counts += [width * 4 * width, 4 * width, 4 * width]
            if block == 0:
                counts += [inputs * 4 * width, 4 * width, 4 * width]
            inputs = 4 * width
    return counts + [2048 * 1000, 1000]


LISTS = {"gpt2": ("GPT-2 small", gpt2), "bert": ("BERT-base", bert),
         "resnet50": ("ResNet-50", resnet50),
         "tiny": ("10000 x 16", lambda: [16] * 10000)}
