package options

import (
	"slices"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// stacktraceLevel is the default of --zap-stacktrace-level. A reconcile that failed and is tried again is routine, and
// its stack is always the same.
const stacktraceLevel = zapcore.PanicLevel

// timeEncoder is the default of --zap-time-encoding. The steps of a fail-over are milliseconds apart.
var timeEncoder = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")

// everything is a level below any that --v can ask for.
const everything = zapcore.Level(-128)

// Logger returns the logger that the options ask for: JSON lines on standard error, unless --zap-* says otherwise.
//
// No line is ever dropped. controller-runtime's production logger keeps only the first hundred lines of the same message
// in a second, which would lose decisions just when many volumes fail over at once. It does so unless a verbosity of 2
// or more is logged, hence the level is opened here and closed again by a filter around the same core.
func Logger(o Options, more ...zap.Opts) logr.Logger {
	z := o.Zap
	if !z.Development {
		level := z.Level
		if level == nil {
			level = zapcore.InfoLevel
		}

		z.Level = everything
		z.ZapOpts = append(slices.Clip(z.ZapOpts), uberzap.IncreaseLevel(level))
	}

	z.ZapOpts = append(slices.Clip(z.ZapOpts), uberzap.WrapCore(func(core zapcore.Core) zapcore.Core { return lazyCore{core} }))
	return zap.New(append([]zap.Opts{zap.UseFlagOptions(&z)}, more...)...)
}

// lazyCore encodes the values of a logger when the first line is written. controller-runtime makes a logger with values of its
// own for each reconciliation, and hardly any of them says something.
type lazyCore struct{ zapcore.Core }

// With implements zapcore.Core.
func (c lazyCore) With(fields []zapcore.Field) zapcore.Core {
	return lazyCore{zapcore.NewLazyWith(c.Core, fields)}
}
