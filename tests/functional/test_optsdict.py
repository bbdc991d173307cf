"""Salt's copy-on-write opts answer as Salt's own class does, whatever is done with them in whatever order."""

import os
import subprocess
import sys

EXAMPLES = int(os.environ.get("SALTCTX_TEST_EXAMPLES", "0")) or 300

# Runs the same random steps on the hooked class and on a private copy of Salt's module that nobody hooked.
PROGRAM = '''
import copy, importlib.util, json, logging, random, sys
logging.disable(logging.CRITICAL)
import salt.minion, salt.utils.optsdict as hooked
from saltctx import activation
activation.activate()
spec = importlib.util.find_spec("salt.utils.optsdict")
stock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stock)
assert hasattr(hooked.OptsDict.get, "__wrapped__") and not hasattr(stock.OptsDict.get, "__wrapped__")
KEYS = ["id", "grains", "pillar", "roots", "none"]

def value(chance):
    return chance.choice([
        1, "text", None, (1, [2]), {}, [], {"flat": 1, "x": "y"}, {"deep": {"deeper": [1, {"a": 2}]}, "n": 1}, [1, [2]],
    ])

def plain(found):
    """What a value is, whoever made it: the kind of thing, and all that is in it."""
    if isinstance(found, dict):
        return [kind(found), [[key, plain(found[key])] for key in sorted(found.keys(), key=str)], len(found), bool(found)]
    if isinstance(found, (list, tuple)):
        return [kind(found), [plain(each) for each in found]]
    return repr(found)

def kind(found):
    return [each.__name__ for each in type(found).__mro__]

def storage(found):
    """What C code sees of a dict; Salt fills that of opts when they are asked for their keys."""
    return sorted(map(str, dict.keys(found))) if copies_none and isinstance(found, dict) else None

def nodes_after(module, seed):
    """All that is seen of a few layers of opts over the course of random steps."""
    chance = random.Random(seed)
    base = {key: copy.deepcopy(value(chance)) for key in chance.sample(KEYS, 4)}
    nodes, seen = [module.OptsDict.from_dict(base, name="root")], []
    for number in range(40):
        node, key = chance.choice(nodes), chance.choice(KEYS)
        try:
            seen.append(step(module, chance, nodes, node, key, chance.randrange(20)))
        except Exception as exc:
            seen.append([type(exc).__name__, str(exc)])
    return seen + [plain(base)] + [[plain(node), sorted(node._local), storage(node)] for node in nodes]

def step(module, chance, nodes, node, key, what):
    new = copy.deepcopy(value(chance))
    other = chance.choice(nodes)
    if what == 0 or what == 1:
        nodes.append(module.OptsDict.from_parent(node, name="child"))
    elif what == 2 and not copies_none:
        # Of a copy's storage only that there is any is kept: Salt's has whatever was there, and is never right for long.
        nodes.append(copy.deepcopy(node))
        return dict.__len__(nodes[-1]) > 0
    elif what == 3:
        nodes.append(module.safe_opts_copy(node))
    elif what == 4:
        node[key] = new
    elif what == 5:
        node[key] = other[key]  # a proxy of one in another
    elif what == 6:
        del node[key]
    elif what == 7:
        return plain(node.pop(key, "gone"))
    elif what == 8:
        node[key]["added"] = new
    elif what == 9:
        node[key]["deep"]["deeper"].append(number_of(nodes))
    elif what == 10:
        node.get(key).get("deep", {})["by get"] = 1
    elif what == 11:
        node[key].append(1)
    elif what == 12:
        return [key in node, bool(node), len(node), node.get(key, "nothing") == other.get(key, "nothing")]
    elif what == 13:
        return sorted(node), sorted(node.keys()), [plain(each) for _, each in sorted(node.items())]
    elif what == 14:
        return json.dumps(node, sort_keys=True, default=str)
    elif what == 15:
        return plain(node.setdefault(key, new))
    elif what == 16:
        return plain({**node}), plain({**node[key]})
    elif what == 17:
        node.update({key: new})
    elif what == 18:
        node.mutate_key(key, new)
    elif what == 19:
        return plain(node.to_dict()), node[key] is node[key], storage(node[key])
    return plain(node.get(key))

def number_of(nodes):
    return len(nodes)

for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    copies_none = seed % 2 == 0
    mine, salts = nodes_after(hooked, seed), nodes_after(stock, seed)
    if repr(mine) != repr(salts):
        for number, (one, other) in enumerate(zip(mine, salts)):
            if repr(one) != repr(other):
                sys.exit(f"seed {seed}, step {number}:\\n{one}\\nstock: {other}")
print("same")
'''


def test_opts_are_as_salts_own_class_makes_them():
    start = 0 if EXAMPLES == 300 else int.from_bytes(os.urandom(3), "big")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(start), str(EXAMPLES)], capture_output=True, text=True, timeout=300,
    )
    assert done.stdout.strip() == "same", done.stderr
