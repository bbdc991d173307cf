"""What saltctx relies on in Salt, checked before anything is hooked."""

import importlib
import inspect

# Dotted name of what is called or hooked -> its parameters, as Salt 3008.4 has them.
SIGNATURES = {
    "salt.minion.Minion._target": "minion_instance, opts, data, connected, creds_map",
    "salt.minion.Minion._thread_return": "minion_instance, opts, data",
    "salt.minion.Minion._thread_multi_return": "minion_instance, opts, data",
    "salt.minion.MinionBase.gen_modules": "self, initial_load, context",
    "salt.minion.Minion._load_modules": "self, force_refresh, notify, grains, opts, context",
    "salt.minion.Minion._send_req_sync": "self, load, timeout",
    "salt.utils.schedule.Schedule.handle_func": "self, multiprocessing_enabled, func, data, jid",
    "salt.loader.grains": "opts, force_refresh, proxy, context, loaded_base_name",
    "salt.loader.lazy.LazyLoader._load_module": "self, name",
    "salt.loader.lazy.LazyLoader._load": "self, key",
    "salt.loader.lazy.LazyLoader._iter_files": "self, mod_name",
    "salt.loader.lazy.LazyLoader._load_all": "self",
    "salt.loader.lazy.LazyLoader._refresh_file_mapping": "self",
    "salt.loader.lazy.LazyLoader.run": "self, _func_or_method, args, kwargs",
    "salt.loader.lazy.LazyLoader.missing_fun_string": "self, function_name",
    "salt.loader.lazy.LoadedFunc.__init__": "self, name, loader",
    "salt.utils.context.func_globals_inject": "func, overrides",
    "salt.loader.context.LoaderContext.named_context": "self, name, default, ctx_class",
    "salt.loader.context.NamedLoaderContext.value": "self",
    "salt.crypt.PrivateKey.__init__": "self, key_bytes, passphrase",
    "salt.state.get_accumulator_dir": "cachedir",
    "salt.utils.args.get_function_argspec": "func, is_class_method",
    "salt.utils.decorators.Depends.enforce_dependencies": "functions, kind, tgt_mod",
    "salt.utils.entrypoints.iter_entry_points": "group, name",
    "salt.utils.optsdict.OptsDict.from_parent": "parent, name",
    "salt.utils.optsdict.OptsDict.from_dict": "base_dict, track_mutations, name",
    "salt.utils.optsdict.OptsDict.mutate_key": "self, key, new_value",
    "salt.utils.optsdict.OptsDict.pop": "self, key, args",
    "salt.utils.optsdict.OptsDict.get": "self, key, default",
    "salt.utils.optsdict.OptsDict._get_all_keys": "self",
    "salt.utils.yamldumper.represent_optsdict": "dumper, data",
    "salt.utils.yamldumper.represent_dictproxy": "dumper, data",
    "salt.utils.yamldumper.represent_listproxy": "dumper, data",
    "salt.utils.optsdict.DictProxy.__init__": "self, target, parent_optsdict, key",
    "salt.utils.optsdict.DictProxy._ensure_copied": "self",
    "salt.loader._module_dirs": (
        "opts, ext_type, tag, int_type, ext_dirs, ext_type_dirs, base_path, load_extensions"
    ),
    "salt.fileserver.Fileserver.update": "self, back, kwargs",
    "salt.fileserver.generate_mtime_map": "opts, path_map",
    "salt.fileserver.reap_fileserver_cache_dir": "cache_base, find_func",
    "salt.utils.process.SubprocessList.cleanup": "self",
}

# The same of a master, which no minion imports.
MASTER_SIGNATURES = {
    "salt.master.AESFuncs._pillar": "self, load",
    "salt.master.AESFuncs._sync_pillar": "self, load",
}

# Functions of Salt -> names they must use: what saltctx replaces means something only where it is used.
RELIED_ON = {
    "salt.minion.Minion._thread_return": ("gen_modules", "functions", "pack", "resource_ctxvar"),
    "salt.minion.Minion._thread_multi_return": ("gen_modules", "functions", "pack"),
    "salt.minion.MinionBase.gen_modules": (
        "utils", "functions", "serializers", "returners", "proxy", "resource_funcs",
        "resource_loaders", "states", "rend", "matchers", "executors",
    ),
    "salt.loader.lazy.LazyLoader.__init__": (
        "pack", "inject_globals", "pack_self", "parent_loader", "loaded_base_name", "tag",
    ),
    "salt.loader.lazy.LazyLoader._load_module": (
        "exec_module", "run", "missing_modules", "file_mapping", "loaded_files", "__salt_loader__",
    ),
    "salt.loader.lazy.LazyLoader._process_virtual": ("__virtual__", "__virtualname__", "__virtual_aliases__"),
    "salt.utils.optsdict.OptsDict.__init__": (
        "_parent", "_local", "_base", "_lock", "_name", "_proxy_cache", "_tracker",
    ),
    "salt.utils.optsdict.OptsDict._proxy_for": ("_proxy_cache",),
    "salt.utils.optsdict.DictProxy.__init__": ("_target", "_parent", "_key", "_copied"),
    "salt.minion.Minion._invoke_execution": ("subprocess_list",),
    "salt.utils.schedule.Schedule.handle_func": ("functions", "returners", "pack"),
}


class UnknownSalt(RuntimeError):
    """This Salt is not as saltctx expects; the text says in what."""


def checks():
    """
    Every check: a list of {"check": str, "ok": bool, "found": str, "advice": str}.

    Imports the modules of Salt that are named; raises nothing. Safe in any thread.
    """
    found = [_check_signature(name, expected) for name, expected in SIGNATURES.items()]
    found += [_check_names(name, names) for name, names in RELIED_ON.items()]
    return found


def require():
    """Raise UnknownSalt, with all that is not as expected, unless every check holds."""
    _require(checks())


def require_master():
    """As :func:`require`, for what is hooked in a master."""
    _require([_check_signature(name, expected) for name, expected in MASTER_SIGNATURES.items()])


def _require(checks):
    failed = [f"{check['check']}: {check['found']}" for check in checks if not check["ok"]]
    if failed:
        raise UnknownSalt(f"Salt {salt_version()} is not as expected: " + "; ".join(failed))


def salt_version():
    """The version of the Salt that is installed, str."""
    return importlib.import_module("salt.version").__version__


def _check_signature(name, expected):
    try:
        function = _find(name)
        found = ", ".join(inspect.signature(function).parameters)
    except Exception as exc:  # whatever is wrong with it, it is not what was expected
        found = f"{type(exc).__name__}: {exc}"
    return _result(f"{name}({expected})", found == expected, f"found ({found})")


def _check_names(name, names):
    try:
        missing = sorted(set(names) - _names_used(inspect.unwrap(_find(name)).__code__))
        found = f"does not use {', '.join(missing)}" if missing else "uses them"
    except Exception as exc:
        missing, found = True, f"{type(exc).__name__}: {exc}"
    return _result(f"{name} uses {', '.join(names)}", not missing, found)


def _result(check, ok, found):
    advice = "" if ok else (
        "This Salt differs from the ones saltctx knows. Salt runs its own code; update saltctx, or report "
        "this line with the Salt version."
    )
    return {"check": check, "ok": ok, "found": found, "advice": advice}


def _names_used(code):
    """Attribute and global names, and strings, of a code object and of those inside it."""
    names = set(code.co_names) | set(code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, str):
            names.add(constant)
        elif hasattr(constant, "co_code"):
            names |= _names_used(constant)
    return names


def _find(name):
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)
