package options

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Evacuations returns the settings of evacuations, as the policy takes them; nil where nodes are not evacuated.
func (o *Options) Evacuations() *evacuation.Settings {
	if !o.Evacuation {
		return nil
	}

	return &evacuation.Settings{MaxNodes: o.MaxConcurrentEvacuations, MaxCopies: o.MaxConcurrentCopies}
}

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
