package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limits are the rates of requests: of who has been identified, of who has not, and of attempts to log in. The page's files and the
// probes count nowhere.
type limits struct{ known, strangers, logins *limiter }

// Whoever has the admin token types it once in a while; whoever guesses it does so more often.
const loginsPerSecond, loginBurst = 0.1, 10

func newLimits(cfg Config) limits {
	burst := func(perSecond float64) int { return max(1, int(2*perSecond)) }
	return limits{
		known: newLimiter(cfg.Rate, burst(cfg.Rate)), strangers: newLimiter(cfg.RateUnknown, burst(cfg.RateUnknown)),
		logins: newLimiter(loginsPerSecond, loginBurst),
	}
}

// maxClients bounds how many clients a limiter knows at a time: some 2 MB of them.
const maxClients = 10_000

// limiter gives each client a bucket of its own. Those that come when it knows too many clients share one, so that whoever comes from
// many addresses takes no more memory and gets no more through. A nil limiter lets everything pass.
type limiter struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	clients map[string]*rate.Limiter
	rest    *rate.Limiter
	swept   time.Time
}

// newLimiter lets each client take perSecond, and burst of what it has not taken before. Zero perSecond is no limit.
func newLimiter(perSecond float64, burst int) *limiter {
	if perSecond == 0 {
		return nil
	}
	l := &limiter{rate: rate.Limit(perSecond), burst: burst, clients: map[string]*rate.Limiter{}}
	l.rest = rate.NewLimiter(l.rate, l.burst)
	return l
}

// take is zero if the client may go on, else how long it has to wait.
func (l *limiter) take(client string, now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	r := l.bucket(client, now).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now) // who is refused has taken nothing
	}
	return wait
}

func (l *limiter) bucket(client string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, found := l.clients[client]; found {
		return b
	}
	if len(l.clients) >= maxClients && now.Sub(l.swept) > time.Second {
		l.swept = now
		for name, b := range l.clients {
			if b.TokensAt(now) >= float64(l.burst) { // full again: to forget it changes nothing
				delete(l.clients, name)
			}
		}
	}
	if len(l.clients) >= maxClients {
		return l.rest
	}
	b := rate.NewLimiter(l.rate, l.burst)
	l.clients[client] = b
	return b
}

// limitError says that a client has to wait.
type limitError struct{ wait time.Duration }

func (e *limitError) Error() string {
	return fmt.Sprintf("api: too many requests of this client; it may go on in %d s", e.seconds())
}

// seconds is how long to wait, in whole ones and not too short, a minute at most.
func (e *limitError) seconds() int { return int(min(time.Minute, e.wait+time.Second-1) / time.Second) }

// address is where a request comes from. An IPv6 network of 64 bits is one place: whoever has one of its addresses has all of them.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is6() || ip.Is4In6() {
		return host
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}
