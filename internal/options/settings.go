package options

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Settings returns the options that decide, as the policy takes them.
func (o *Options) Settings() failover.Settings {
	return failover.Settings{
		ConfirmedGrace:   o.ConfirmedLossGracePeriod,
		UnanimousGrace:   o.UnanimousLossGracePeriod,
		KnownGrace:       o.KnownResourceGracePeriod,
		NewGrace:         o.NewResourceGracePeriod,
		KubeletSilence:   o.KubeletSilence,
		DeletionGrace:    time.Duration(o.GracePeriodSeconds) * time.Second,
		RemoveUnsafePods: o.FailOverUnsafePods,
	}
}
