# Does random work below two directories, as told, and lists them: what a name
# leads to with all that is to last. Work that cannot be done is left out.
import hashlib, json, os, shutil, stat, sys

def content(n, seed):
    return (hashlib.sha256(str(seed).encode()).digest() * (n // 32 + 1))[:n]

def write(p, n, seed):
    with open(p, 'wb') as f:
        f.write(content(n, seed))

def append(p, n, seed):
    with open(p, 'ab') as f:
        f.write(content(n, seed))

def middle(p, n, seed):
    with open(p, 'r+b') as f:
        f.seek(seed % (os.path.getsize(p) + 1))
        f.write(content(n, seed))

def sparse(p, n, seed):
    with open(p, 'wb') as f:
        f.seek(n * 64)
        f.write(content(n, seed))

def remove(p, n, seed):
    if os.path.isdir(p) and not os.path.islink(p):
        shutil.rmtree(p)
    else:
        os.remove(p)

def swap(p, n, seed): # a directory in the place of whatever is there
    if os.path.lexists(p):
        remove(p, n, seed)
    os.mkdir(p)
    write(os.path.join(p, 'in'), 3, seed)

ops = {
    'write': lambda p, q, n, s: write(p, n, s),
    'append': lambda p, q, n, s: append(p, n, s),
    'middle': lambda p, q, n, s: middle(p, n, s),
    'sparse': lambda p, q, n, s: sparse(p, n, s),
    'truncate': lambda p, q, n, s: os.truncate(p, n),
    'mkdir': lambda p, q, n, s: os.makedirs(p),
    'remove': lambda p, q, n, s: remove(p, n, s),
    'swap': lambda p, q, n, s: swap(p, n, s),
    'rename': lambda p, q, n, s: os.rename(p, q),
    'link': lambda p, q, n, s: os.link(p, q, follow_symlinks=False),
    'symlink': lambda p, q, n, s: os.symlink(q, p),
    'chmod': lambda p, q, n, s: os.chmod(p, [0o644, 0o600, 0o755, 0o4711, 0o1777][s % 5]),
    'chown': lambda p, q, n, s: os.lchown(p, s % 7, s % 5),
    'xattr': lambda p, q, n, s: os.setxattr(p, 'user.a%d' % (s % 3), content(n % 50, s)),
    'unxattr': lambda p, q, n, s: os.removexattr(p, 'user.a%d' % (s % 3)),
    'utime': lambda p, q, n, s: os.utime(p, ns=(s, s * 1000003), follow_symlinks=False),
    'fifo': lambda p, q, n, s: os.mkfifo(p),
    'device': lambda p, q, n, s: os.mknod(p, 0o600 | stat.S_IFCHR, os.makedev(1, 3 + s % 3)),
}

for op in json.loads(sys.argv[1]):
    try:
        ops[op['Op']](op['Path'], op['Other'], op['N'], op['Seed'])
    except OSError:
        pass

first = {}
def line(p):
    st = os.lstat(p)
    f = [p, oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns]
    if not stat.S_ISDIR(st.st_mode):
        f += [st.st_nlink, '=' + first.setdefault((st.st_dev, st.st_ino), p)]
    if stat.S_ISLNK(st.st_mode):
        f.append('-> ' + os.readlink(p))
    elif stat.S_ISREG(st.st_mode):
        with open(p, 'rb') as r:
            f += [st.st_size, hashlib.file_digest(r, 'sha256').hexdigest()[:16]]
    elif stat.S_ISCHR(st.st_mode):
        f.append(st.st_rdev)
    if not stat.S_ISLNK(st.st_mode):
        f += ['%s=%s' % (x, os.getxattr(p, x).hex()) for x in sorted(os.listxattr(p))]
    print(*f)

def walk(p):
    line(p)
    if stat.S_ISDIR(os.lstat(p).st_mode):
        for n in sorted(os.listdir(p)):
            walk(os.path.join(p, n))

for top in sys.argv[2:]:
    walk(top)
    print('--')
