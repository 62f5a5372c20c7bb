package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/daemon"
	"github.com/glovebox-dev/glovebox/internal/server"
)

type serveFlags struct {
	listen  string
	preview string
	public  string
	deny    string
	caFile  string
	warm    int
	limits  limitFlags
	reserve string
	format  string
	level   string
	tls     tlsFlags
	leave   bool
}

// tlsFlags are the second listener.
type tlsFlags struct{ listen, cert, key string }

// certificate loads what the flags name; nil where they name nothing.
func (f tlsFlags) certificate(preview string, log *slog.Logger) (*server.Certificate, error) {
	given := f.listen != "" || f.cert != "" || f.key != ""
	if !given {
		return nil, nil
	}
	if f.listen == "" || f.cert == "" || f.key == "" {
		return nil, fail("--tls-listen, --tls-cert and --tls-key belong together", "give all three")
	}
	c, err := server.LoadCertificate(f.cert, f.key, log)
	if err != nil {
		return nil, fail(err.Error(), "name a certificate with its chain, and its key, both in PEM")
	}
	if preview != "" {
		if err := c.Covers("any." + preview); err != nil {
			return nil, fail(fmt.Sprintf("the certificate %s is not good for previews: %v", f.cert, err), "use one for *."+preview)
		}
	}
	return c, nil
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server in the foreground until Ctrl-C or SIGTERM, which stops all
sandboxes in good order and keeps the files of persistent ones. The sandboxes of
a server that died, or that left them with --leave-running, are the next one's, if
it comes within 15 minutes; their connections and terminals end. At its first
start it makes the default image; GET /healthz answers 200 once sandboxes can be
made.

$GLOVEBOX_TOKEN is the first token, which may use any project. Root on this
machine needs none: the other commands find the server by its data directory.`,
		Example: `glovebox serve
GLOVEBOX_TOKEN=… glovebox serve --listen 0.0.0.0:7777 --preview-domain sandbox.example.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", a.env(envListen, defaultListen), "address of the HTTP API and the previews ($"+envListen+")")
	flags.StringVar(&f.preview, "preview-domain", a.getenv(envPreview), "domain below which ports get their addresses ($"+envPreview+")")
	flags.StringVar(&f.public, "public-url", a.getenv(envPublicURL), "address at which clients reach the API, behind a proxy ($"+envPublicURL+")")
	flags.StringVar(&f.deny, "network-deny", a.getenv(envDeny), "names, addresses and ranges that no policy opens, with commas between, or @FILE with one a line ($"+envDeny+")")
	flags.StringVar(&f.tls.listen, "tls-listen", "", "address of the same with TLS, such as 0.0.0.0:443")
	flags.StringVar(&f.tls.cert, "tls-cert", "", "file with its certificate and chain (PEM), read again when it is renewed")
	flags.StringVar(&f.tls.key, "tls-key", "", "file with the certificate's key (PEM)")
	flags.StringVar(&f.caFile, "egress-ca-file", "", "PEM file of further authorities for the destinations of network policies' rules")
	flags.IntVar(&f.warm, "warm", daemon.DefaultWarm, "started sandboxes that wait for each image in demand")
	flags.BoolVar(&f.leave, "leave-running", false, "at SIGTERM leave the sandboxes running, for the next server on this data directory")
	f.limits.register(flags)
	flags.StringVar(&f.reserve, "reserve", "1g", "free space that only the disks of sandboxes that stop may touch")
	flags.StringVar(&f.format, "log-format", "text", "text or json")
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	flags.Lookup("listen").DefValue = defaultListen
	flags.Lookup("preview-domain").DefValue = ""
	flags.Lookup("public-url").DefValue = ""
	flags.Lookup("network-deny").DefValue = ""
	return cmd
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	log, err := newLogger(a.errOut, f.format, f.level)
	if err != nil {
		return err
	}
	limits, err := f.limits.parse()
	if err != nil {
		return err
	}
	reserve, err := parseSize("--reserve", f.reserve)
	if err != nil {
		return err
	}
	deny, err := readDenyList("--network-deny", f.deny)
	if err != nil {
		return err
	}
	// The port first: what takes long should not end in a taken port.
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return listenError(f.listen, err)
	}
	defer listener.Close()
	cert, err := f.tls.certificate(f.preview, log)
	if err != nil {
		return err
	}
	var secure net.Listener
	if cert != nil {
		if secure, err = lc.Listen(ctx, "tcp", f.tls.listen); err != nil {
			return listenError(f.tls.listen, err)
		}
		defer secure.Close()
	}
	d, err := daemon.Open(ctx, daemon.Config{
		DataDir: a.dataDir, PublicURL: f.public, PreviewDomain: f.preview, EgressCAFile: f.caFile, Certificate: cert,
		FirstToken: a.token, DNS: a.getenv(envDNS), NetworkDeny: deny, Warm: f.warm, Limits: limits, ReserveBytes: reserve, Logger: log,
	})
	if err != nil {
		return err
	}
	serveErr := d.Serve(ctx, listener, secure)
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if f.leave && serveErr == nil && d.Running() > 0 {
		return d.Leave(after)
	}
	return errors.Join(serveErr, d.Close(after))
}

// shutdownTime bounds the end of a server, which saves the disks of all
// persistent sandboxes.
const shutdownTime = 10 * time.Minute

func listenError(addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fail("listen on "+addr+": the port is taken", "end what listens there (ss -ltnp), or choose another with --listen")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fail("listen on "+addr+": this machine does not have the address", "use 127.0.0.1, 0.0.0.0 or one that ip addr shows")
	case errors.Is(err, syscall.EACCES):
		return fail("listen on "+addr+": not permitted", "run it as root (sudo), or choose a port above 1023")
	}
	return fail("listen on "+addr+": "+err.Error(), "write it like --listen "+defaultListen)
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fail(fmt.Sprintf("--log-level %q is unknown", level), "use debug, info, warn or error")
	}
	options.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &options)), nil
	}
	return nil, fail(fmt.Sprintf("--log-format %q is unknown", format), "use text or json")
}
