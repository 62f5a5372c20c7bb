//go:build linux && amd64 && !race

package isolation

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/test/testserver"
)

// canary marks things of the host that no sandbox may see.
var canary = "canary" + strings.ToLower(rand.Text())

// host is what the tests must not find inside.
type host struct {
	server   *testserver.Server
	hostname string
	release  string // of the kernel
	file     string // holds the canary
	addrs    []string
	port     string // of a listener on every address of the host
	touched  *atomic.Int64
}

func newHost(t *testing.T) *host {
	t.Helper()
	t.Setenv("HOST_CANARY", canary) // the server inherits it
	h := &host{server: testserver.Start(t), touched: new(atomic.Int64)}
	h.hostname, _ = os.Hostname()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	h.release = unix.ByteSliceToString(uts.Release[:])
	h.file = filepath.Join(t.TempDir(), canary)
	if err := os.WriteFile(h.file, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	h.listen(t)
	return h
}

// listen counts whoever connects to any address of this host.
func (h *host) listen(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, h.port, _ = net.SplitHostPort(l.Addr().String())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.touched.Add(1)
			conn.Close()
		}
	}()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	h.addrs = []string{"127.0.0.1", "127.0.0.53", "0.0.0.0", "::1", "::ffff:127.0.0.1"}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() {
			h.addrs = append(h.addrs, ip.IP.String())
		}
	}
}

// look is one attempt to see something.
type look struct {
	name   string
	script string         // run with sh -c
	sudo   bool           // as root
	want   *regexp.Regexp // must match the output, where set
	not    *regexp.Regexp // must not match the output, where set
}

func TestNothingOfTheHostCanBeSeen(t *testing.T) {
	h := newHost(t)
	sandbox := h.server.Create(t, nil)
	words := []string{canary, h.file, h.server.DataDir, h.server.Bin, h.server.Token, h.release}
	if len(h.hostname) > 3 {
		words = append(words, h.hostname)
	}
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	secret := regexp.MustCompile(strings.Join(words, "|"))

	for _, l := range looks(h) {
		t.Run(l.name, func(t *testing.T) {
			result := sandbox.Run(t, map[string]any{"sudo": l.sudo, "timeout": 60_000}, "sh", "-c", l.script)
			output := result.Stdout + result.Stderr
			if found := secret.FindString(output); found != "" {
				t.Errorf("shows %q of the host:\n%.2000s", found, output)
			}
			if l.want != nil && !l.want.MatchString(output) {
				t.Errorf("does not match %v:\n%.2000s", l.want, output)
			}
			if l.not != nil && l.not.MatchString(output) {
				t.Errorf("matches %v:\n%.2000s", l.not, output)
			}
		})
	}

	if n := h.touched.Load(); n > 0 {
		t.Errorf("a sandbox reached a listener of the host %d times", n)
	}
	if result := sandbox.Run(t, nil, "echo", "alive"); result.Stdout != "alive\n" {
		t.Errorf("after all this the sandbox answers %+v", result)
	}
}

// connect prints how connecting to each address ends, one line each.
func connect(targets ...string) string {
	list := "'" + strings.Join(targets, "','") + "'"
	return fmt.Sprintf(`exec python3 - <<'PY'
import socket,threading
def go(target):
    host,_,port=target.rpartition(':')
    family=socket.AF_INET6 if ':' in host else socket.AF_INET
    s=None
    try:
        s=socket.socket(family); s.settimeout(5); s.connect((host.strip('[]'),int(port))); print('CONNECTED',target,flush=True)
        s.settimeout(2); s.sendall(b'GET / HTTP/1.0\r\n\r\n'); print('READ',target,len(s.recv(100)),flush=True)
    except TimeoutError as e: print('TIMEOUT',target,flush=True)
    except OSError as e: print('refused',target,e,flush=True)
    if s: s.close()
ts=[threading.Thread(target=go,args=(t,)) for t in [%s]]
for t in ts: t.start()
for t in ts: t.join()
PY`, list)
}

var (
	reached  = regexp.MustCompile(`CONNECTED|READ`)
	answered = regexp.MustCompile(`CONNECTED|READ|TIMEOUT`)
	denied   = regexp.MustCompile(`(?i)not permitted|permission denied|not implemented|no such|cannot|read-only|invalid|unknown`)
)

func looks(h *host) []look {
	server, _ := url.Parse(h.server.URL)
	var hostListeners, gateway []string
	for _, a := range h.addrs {
		hostListeners = append(hostListeners, net.JoinHostPort(a, h.port), net.JoinHostPort(a, server.Port()))
	}
	for _, port := range []string{"1", "22", "25", "80", "443", "2375", "5432", "6060", "7777", "8080", "9090", "61000", h.port, server.Port()} {
		gateway = append(gateway, "10.88.0.1:"+port)
	}
	return append(append(files(), kernel()...), []look{
		{name: "loopback and own addresses of the host", script: connect(hostListeners...), not: reached},
		{name: "the gateway has no port but the resolver's", script: connect(gateway...), not: answered},
		{name: "addresses beside the sandbox's own", script: connect("10.88.0.3:80", "10.88.0.254:22", "10.88.1.2:80", "10.0.0.1:80", "192.168.0.1:80", "172.17.0.1:80"), not: answered},
		{name: "metadata services", script: connect("169.254.169.254:80", "169.254.170.2:80", "100.100.100.200:80", "[fd00:ec2::254]:80", "[fe80::1]:80"), not: answered},
		{name: "the agent answers nobody inside", script: connect("10.88.0.2:61000", "127.0.0.1:61000"), not: regexp.MustCompile(`READ \S+ [1-9]`)},
		{name: "the agent answers not even root", sudo: true, script: connect("10.88.0.2:61000", "127.0.0.1:61000"), not: regexp.MustCompile(`READ \S+ [1-9]`)},
		{name: "names of the host do not resolve to it", script: "getent hosts " + h.hostname + " host.docker.internal gateway; true", not: regexp.MustCompile(`(?m)^(10\.88\.0\.1|172\.|192\.168\.)`)},
	}...)
}

// files: environment, processes, mounts, file systems.
func files() []look {
	return []look{
		{name: "environment", script: "env; cat /proc/self/environ", want: regexp.MustCompile(`PATH=`), not: regexp.MustCompile(`GLOVEBOX|HOST_CANARY`)},
		{name: "environment of PID 1", sudo: true, script: "cat /proc/1/environ | tr '\\0' '\\n'", not: regexp.MustCompile(`GLOVEBOX|HOST_CANARY|(?i)token|secret`)},
		{name: "command line and files of PID 1", sudo: true, script: "cat /proc/1/cmdline; ls -l /proc/1/fd /proc/1/cwd /proc/1/root /proc/1/exe; cat /proc/1/maps", not: regexp.MustCompile(`/var/lib|\.erofs`)},
		{name: "processes are the sandbox's own", script: "ps -e -o pid= -o args= | wc -l; ps -ef", want: regexp.MustCompile(`^\s*[1-9]\n`), not: regexp.MustCompile(`systemd|runsc|glovebox`)},
		{name: "mounts", script: "cat /proc/mounts", want: regexp.MustCompile(`(?m)^\S+ / `), not: regexp.MustCompile(`(?m)^/dev/(sd|vd|nvme|mapper)|/var/lib|9p |\.erofs`)},
		{name: "mount table", script: "cat /proc/self/mountinfo /proc/1/mountinfo 2>&1", not: regexp.MustCompile(`/dev/(sd|vd|nvme|mapper)|/var/lib| 9p `)},
		{name: "file systems", script: "df -a; cat /proc/partitions /proc/swaps 2>&1", not: regexp.MustCompile(`/dev/(sd|vd|nvme)`)},
		{name: "every file by name", sudo: true, script: "find / -xdev -name '" + canary + "*' 2>/dev/null; ls -la / /mnt /media /host /.glovebox 2>&1", not: regexp.MustCompile(canary)},
		{name: "every file by content", sudo: true, script: "grep -rlF " + splitWord(canary) + " /etc /root /run /tmp /var/tmp /opt /srv 2>/dev/null; true", not: regexp.MustCompile(`/`)},
		{name: "name of the machine", script: "hostname; cat /etc/hostname /etc/hosts /etc/machine-id /sys/class/dmi/id/* 2>&1"},
	}
}

// splitWord keeps the searching command from finding itself.
func splitWord(w string) string { return w[:5] + "\"\"" + w[5:] }

// kernel: capabilities, devices, system calls.
func kernel() []look {
	syscall := func(body string) string {
		return "exec python3 - <<'PY'\nimport ctypes,os\nlibc=ctypes.CDLL(None,use_errno=True)\ndef call(*a):\n    r=libc.syscall(*a); print(r, os.strerror(ctypes.get_errno()) if r<0 else 'SUCCEEDED')\n" + body + "\nPY"
	}
	succeeded := regexp.MustCompile(`SUCCEEDED`)
	return []look{
		{name: "kernel's version and log", script: "uname -a; cat /proc/version; dmesg 2>&1", not: regexp.MustCompile(`(?i)hypervisor detected|BIOS`)},
		{name: "capabilities cannot contain those over the kernel", sudo: true, script: capabilityScript, want: regexp.MustCompile(`none`)},
		{name: "an ordinary command has no capability", script: "awk '/CapEff|CapPrm/{print $2}' /proc/self/status", want: regexp.MustCompile(`^0+\n0+\n$`)},
		{name: "mount", sudo: true, script: "mount -t tmpfs none /mnt; mount -t proc none /mnt; mount --bind / /mnt; mount -o remount,rw /", want: denied},
		{name: "new root", sudo: true, script: "unshare -m true; nsenter -t 1 -m true; pivot_root / /mnt; true", want: denied},
		{name: "tracing PID 1", sudo: true, script: syscall("call(101,16,1,0,0)\ncall(101,16902,1,0,0)"), not: succeeded},
		{name: "memory of PID 1", sudo: true, script: "head -c 1 /proc/1/mem >/dev/null && echo SUCCEEDED", not: succeeded},
		{name: "raw and packet sockets", sudo: true, script: "exec python3 - <<'PY'\nimport socket\nfor a in [(socket.AF_INET,socket.SOCK_RAW,255),(socket.AF_PACKET,socket.SOCK_RAW,0x300)]:\n    try: socket.socket(*a); print('SUCCEEDED',a)\n    except OSError as e: print(e)\nPY", not: succeeded},
		{name: "devices", sudo: true, script: "find /dev -type b -o -name mem -o -name kmem -o -name kvm -o -name port -o -name 'sd*' -o -name 'vd*' -o -name 'nvme*' -o -name 'loop*' | grep . && echo SUCCEEDED; true", not: succeeded},
		{name: "made devices", sudo: true, script: "for d in 'b 8 0' 'b 253 0' 'c 1 1' 'c 10 232' 'b 7 0'; do rm -f /tmp/d; mknod /tmp/d $d && head -c 16 /tmp/d >/dev/null && echo SUCCEEDED $d; done; true", not: succeeded},
		{name: "kernel modules, reboot, clock, key rings", sudo: true, script: syscall("call(175,0,0,b'')\ncall(313,-1,b'',0)\ncall(246,0,0,0,0)\ncall(169,0xfee1dead,672274793,0x1234567,0)\ncall(321,0,0,0)\ncall(298,0,0,-1,-1,0)\ncall(425,1,0)"), not: succeeded},
		{name: "kernel interfaces", sudo: true, script: "head -c 16 /proc/kcore /proc/kallsyms /dev/mem 2>&1 | grep -v '==>' ; ls /sys/kernel/debug /sys/firmware /sys/block /proc/sysrq-trigger 2>&1; echo h > /proc/sysrq-trigger; echo '|/bin/sh' > /proc/sys/kernel/core_pattern && cat /proc/sys/kernel/core_pattern", not: regexp.MustCompile(`^\|/bin/sh`)},
		{name: "only the cable", script: "cat /proc/net/dev /proc/net/route; ls /sys/class/net 2>&1", not: regexp.MustCompile(`docker|veth|br-|wlan|ens|enp`)},
	}
}

// capabilityScript names the capabilities of root's bounding set that reach
// beyond the sandbox's own files and processes.
const capabilityScript = `exec python3 - <<'PY'
bounding=int(next(l for l in open('/proc/self/status') if l.startswith('CapBnd')).split()[1],16)
bad={16:'sys_module',17:'sys_rawio',21:'sys_admin',22:'sys_boot',25:'sys_time',8:'setpcap',34:'syslog',39:'bpf',38:'perfmon',32:'mac_override',33:'mac_admin',35:'wake_alarm',40:'checkpoint_restore'}
print([n for b,n in bad.items() if bounding>>b&1] or 'none')
PY`

// TestRootCanEndItsOwnSandboxAlone: gVisor lets root end PID 1, which is to a
// sandbox what pulling the plug is to a machine.
func TestRootCanEndItsOwnSandboxAlone(t *testing.T) {
	server := testserver.Start(t)
	witness, own := server.Create(t, nil), server.Create(t, nil)
	body := map[string]any{"command": "kill", "args": []string{"-9", "1"}, "sudo": true}
	server.Send(t, http.MethodPost, "/v2/sandboxes/sessions/"+own.Session+"/cmd", body).Body.Close()

	var now struct{ Session struct{ Status string } }
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && now.Session.Status != "failed"; time.Sleep(50 * time.Millisecond) {
		server.Call(t, http.MethodGet, "/v2/sandboxes/sessions/"+own.Session, nil, &now)
	}
	if now.Session.Status != "failed" {
		t.Errorf("the session is %q after its PID 1 was ended", now.Session.Status)
	}
	if result := witness.Run(t, nil, "echo", "alive"); result.Stdout != "alive\n" {
		t.Errorf("another sandbox answers %+v", result)
	}
}

func TestSandboxesDoNotReachEachOther(t *testing.T) {
	server := testserver.Start(t)
	one := server.Create(t, map[string]any{"ports": []int{3000}})
	two := server.Create(t, nil)
	one.Run(t, nil, "sh", "-c", "echo "+canary+" > index.html; nohup python3 -m http.server 3000 --bind 0.0.0.0 >/dev/null 2>&1 & until python3 -c \"import socket; socket.create_connection(('127.0.0.1',3000))\" 2>/dev/null; do sleep 0.1; done")

	address := strings.TrimSpace(two.Run(t, nil, "sh", "-c", "hostname -I").Stdout)
	result := two.Run(t, map[string]any{"timeout": 60_000}, "sh", "-c", connect("127.0.0.1:3000", "10.88.0.1:3000", "10.88.0.2:3000", "10.88.0.3:3000"))
	if reached.MatchString(result.Stdout) {
		t.Errorf("from %s another sandbox's port was reached:\n%s", address, result.Stdout)
	}
	search := two.Run(t, map[string]any{"sudo": true}, "sh", "-c", "grep -rlF "+splitWord(canary)+" /vercel /tmp /run /etc 2>/dev/null; ps -ef | grep '[h]ttp.server'")
	if search.Stdout != "" {
		t.Errorf("another sandbox's things can be seen:\n%s", search.Stdout)
	}
}

// TestSendersOfDatagramsCanBeKilled: threads that overfill the cable must
// end with their process, and with them their packets.
func TestSendersOfDatagramsCanBeKilled(t *testing.T) {
	sandbox := testserver.Start(t).Create(t, nil)
	flood := `exec python3 - <<'PY'
import socket,threading
def go(i):
    while True:
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
        try:
            for _ in range(50): s.sendto(b'x'*60000,('203.0.113.%d'%(i+1),1000+i))
        except OSError: pass
        s.close()
for i in range(8): threading.Thread(target=go,args=(i,)).start()
PY`
	if result := sandbox.Run(t, map[string]any{"timeout": 4000}, "sh", "-c", flood); result.ExitCode != 137 {
		t.Fatalf("ended by its time-out: %+v", result)
	}
	left := sandbox.Run(t, nil, "sh", "-c", "sleep 1; ps -e -o stat=,comm= | grep python; true")
	if left.Stdout != "" {
		t.Errorf("left of it:\n%s", left.Stdout)
	}
}
