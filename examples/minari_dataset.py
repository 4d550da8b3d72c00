"""Export demonstrations as a Minari dataset and read it: python examples/minari_dataset.py [REPLAYS]"""

import sys
from pathlib import Path

import minari

from bc.demonstrations import find_replays, load_demonstrations
from bc.minari import MinariMetadata, export_minari

SHIPPED = Path(__file__).parents[1] / "datasets" / "demonstrations" / "simplest.h5"


def main(replays: str = str(SHIPPED), most: int = 20) -> list[int]:
    """Export at most ``most`` replays; return the number of episodes of each dataset."""
    found = load_demonstrations(find_replays(replays)[:most], frame_skip=4)
    about = MinariMetadata("example", "you", "you@example.com", "https://example.com")
    counts = []
    for name in export_minari(found, about, observations=("state", "reachability")):
        dataset = minari.load_dataset(name)
        counts.append(dataset.total_episodes)
        episode = next(dataset.iterate_episodes())
        print(f"{name}: {dataset.total_episodes} episodes; the first has {len(episode.actions)} decisions")
    return counts


if __name__ == "__main__":
    main(*sys.argv[1:])
