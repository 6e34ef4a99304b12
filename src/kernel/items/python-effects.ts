/**
 * Python source of `acts(node)`: true if a statement can have an effect when the module runs. Only what is known to
 * have none is quiet: definitions, imports, values, calls of pure functions, and calls of functions of the file that are
 * quiet themselves. It needs `tree` and `guarded` of the program that reads a tool.
 */
export const PYTHON_EFFECTS = `
import builtins
PURE = {name for name in dir(builtins) if isinstance(getattr(builtins, name), type) and issubclass(getattr(builtins, name), BaseException)}
PURE |= set("abs all any ascii bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate float format frozenset getattr globals hasattr hash hex id int isinstance issubclass iter len list locals max memoryview min object oct ord pow property range repr reversed round set slice sorted staticmethod str sum super tuple type vars zip".split())
PURE_MODULES = set("abc base64 collections contextvars copy dataclasses datetime decimal enum fractions hashlib math numbers operator os.path platform queue re statistics string struct textwrap types typing typing_extensions uuid warnings weakref".split())
PURE_NAMES = set("os.getenv os.environ.get os.environ.setdefault os.environ.copy os.environ.items os.getcwd os.getpid os.cpu_count pathlib.Path pathlib.PurePath pathlib.PurePosixPath pathlib.Path.home pathlib.Path.cwd json.loads json.dumps json.JSONEncoder json.JSONDecoder logging.getLogger logging.NullHandler logging.StreamHandler logging.Formatter logging.basicConfig logging.addLevelName sys.path.insert sys.path.append sys.getdefaultencoding threading.Lock threading.RLock threading.Event threading.Condition threading.Semaphore threading.BoundedSemaphore threading.local asyncio.Lock asyncio.Event asyncio.Semaphore asyncio.Queue time.time time.monotonic time.perf_counter functools.partial functools.partialmethod functools.lru_cache functools.cache functools.cached_property functools.wraps functools.singledispatch functools.total_ordering itertools.chain itertools.chain.from_iterable itertools.count itertools.cycle itertools.product itertools.repeat contextlib.suppress contextlib.contextmanager contextlib.asynccontextmanager contextlib.nullcontext shutil.which importlib.util.find_spec random.Random tempfile.gettempdir dotenv.load_dotenv".split())
PURE_METHODS = MUTATORS | set("__init__ absolute as_posix capitalize casefold copy count decode difference encode endswith exists expanduser format format_map fromkeys get getLogger groups hex index intersection is_dir is_file isdigit items joinpath join keys lower lstrip maketrans match replace resolve rsplit rstrip search setLevel addHandler addFilter split splitlines startswith strip title translate union upper values with_name with_suffix zfill".split())
definitions, imported, bound, running = {}, {}, set(), set()
for inner in ast.walk(tree):
    if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        definitions.setdefault(inner.name, []).append(inner)
    elif isinstance(inner, ast.Import):
        for alias in inner.names:
            imported[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
    elif isinstance(inner, ast.ImportFrom):
        for alias in inner.names:
            imported[alias.asname or alias.name] = "." * inner.level + (inner.module or "") + "." + alias.name
    elif isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
        bound.add(inner.id)
    elif isinstance(inner, ast.arg):
        bound.add(inner.arg)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
def dotted(node):
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return None if before is None else before + "." + node.attr
    return imported.get(node.id, node.id) if isinstance(node, ast.Name) else None
def is_pure(name):
    parts = name.split(".")
    return name in PURE_NAMES or any(".".join(parts[:count]) in PURE_MODULES for count in range(1, len(parts)))
def is_stdlib(name):
    return name.split(".")[0] in stdlib
def runs(node):
    if id(node) in running:
        return False
    running.add(id(node))
    try:
        if isinstance(node, FUNCTIONS):
            return any(acts(part) for part in node.body)
        hidden = [part for part in node.body if isinstance(part, FUNCTIONS) and (part.name.startswith("__") or part.decorator_list)]
        return any(runs(part) for part in hidden) or any(not is_plain(base) for base in node.bases + [word.value for word in node.keywords])
    finally:
        running.discard(id(node))
def is_plain(base):
    while isinstance(base, ast.Subscript):
        base = base.value
    name = dotted(base)
    if name in definitions:
        return not any(runs(part) for part in definitions[name])
    return isinstance(base, ast.Constant) or (name is not None and (is_pure(name) if "." in name else name in PURE))
def decorates(node):
    called = isinstance(node, ast.Call)
    name = dotted(node.func if called else node)
    found = definitions.get(name, [])
    nested = [part for one in found if called and isinstance(one, FUNCTIONS) for part in one.body if isinstance(part, FUNCTIONS)]
    if found:
        return any(runs(part) for part in found + nested)
    return name is not None and "." in name and is_stdlib(name) and not is_pure(name)
def calls(node):
    func = node.func
    if any(isinstance(part, ast.Lambda) and acts(part.body) for part in node.args + [word.value for word in node.keywords]):
        return True
    root = func
    while isinstance(root, ast.Attribute):
        root = root.value
    name = dotted(func)
    if isinstance(root, ast.Name) and root.id in imported:
        return not is_pure(name)
    if isinstance(func, ast.Name):
        if func.id in definitions:
            return any(runs(part) for part in definitions[func.id])
        return func.id in bound or func.id not in PURE
    if not isinstance(func, ast.Attribute):
        return True
    if func.attr in definitions:
        return any(runs(part) for part in definitions[func.attr])
    return func.attr not in PURE_METHODS and not (isinstance(root, ast.Name) and root.id in PURE and root.id not in bound)
def acts(node):
    if isinstance(node, FUNCTIONS + (ast.Lambda,)):
        defaults = [part for part in node.args.defaults + node.args.kw_defaults if part is not None]
        return any(acts(part) for part in defaults) or any(decorates(part) for part in getattr(node, "decorator_list", []))
    if isinstance(node, ast.ClassDef):
        hooks = definitions.get("__init_subclass__", []) + definitions.get("__set_name__", [])
        body = [part for part in node.body if not isinstance(part, (ast.Assign, ast.AnnAssign))]
        metas = [part for word in node.keywords for part in definitions.get(dotted(word.value), [])]
        return any(acts(part) for part in body) or any(decorates(part) for part in node.decorator_list) or any(runs(part) for part in hooks + metas)
    if isinstance(node, ast.Try):
        imports_something = any(isinstance(part, (ast.Import, ast.ImportFrom)) for part in node.body)
        rest = [part for handler in node.handlers if not (imports_something and guarded([handler])) for part in handler.body]
        return any(acts(part) for part in node.body + node.orelse + node.finalbody + rest)
    if isinstance(node, ast.If) and any(dotted(part) == "sys.version_info" for part in ast.walk(node.test)):
        return any(acts(part) for part in node.body + node.orelse if not isinstance(part, ast.Raise))
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and dotted(node.iter) == "sys.stdin":
        return True
    if isinstance(node, (ast.Raise, ast.Assert, ast.While, ast.Await)) or (isinstance(node, ast.Call) and calls(node)):
        return True
    return any(acts(part) for part in ast.iter_child_nodes(node))
`;
