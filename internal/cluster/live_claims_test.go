package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claimsWorld is the API server with the claims of volumesWorld, each bound to the volume of its name, and who reads them past the cache.
func claimsWorld(t *testing.T) (Live, client.Client) {
	t.Helper()
	pods, api := volumesWorld(t)
	for _, name := range []string{"data", "wal"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		claim.Spec.VolumeName = name
		if err := api.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		changed(t, api, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef.UID = claim.UID
		})
	}
	return Live{Reader: api, volumes: pods.volumes, sightings: NewSightings(clock.RealClock{})}, api
}

// changed changes an object of the API server.
func changed[T client.Object](t *testing.T, api client.Client, o T, change func(T)) {
	t.Helper()
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	change(o)
	if err := api.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// A claim that was deleted and created again may have another volume than the cache says, for as long as its watch is dead.
func TestOnlyWhatTheAPIBindsLikeTheCacheIsConfirmed(t *testing.T) {
	t.Parallel()
	data := func() *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	}
	again := func(t *testing.T, api client.Client, o client.Object) {
		t.Helper()
		if err := api.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		o.SetUID("")
		o.SetResourceVersion("")
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change    func(*testing.T, client.Client)
		confirmed bool
	}{
		"nothing has changed": {func(*testing.T, client.Client) {}, true},
		"the claim has another volume": {func(t *testing.T, api client.Client) {
			changed(t, api, data(), func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "another" })
		}, false},
		"the claim was created again": {func(t *testing.T, api client.Client) {
			claim := data()
			claim.Spec.VolumeName = "data"
			again(t, api, claim)
		}, false},
		"the claim is gone": {func(t *testing.T, api client.Client) {
			if err := api.Delete(t.Context(), data()); err != nil {
				t.Fatal(err)
			}
		}, false},
		"the volume was created again, for the same claim": {func(t *testing.T, api client.Client) {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(pv), pv); err != nil {
				t.Fatal(err)
			}
			again(t, api, pv)
		}, false},
		"the volume is gone": {func(t *testing.T, api client.Client) {
			if err := api.Delete(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}}); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cached, _ := claimsWorld(t)
			live, api := claimsWorld(t)
			live.volumes = cached.volumes
			tc.change(t, api)
			pod := podWith("data")
			if err := live.ConfirmClaims(t.Context(), &pod); (err == nil) != tc.confirmed {
				t.Errorf("ConfirmClaims = %v, want confirmed: %t", err, tc.confirmed)
			}
		})
	}
}

// Two PersistentVolumes of one LINSTOR resource share their pods.
func TestTwoVolumesOfOneResourceShareTheirPods(t *testing.T) {
	t.Parallel()
	live, api := claimsWorld(t)
	now := start.Time
	live.Clock = clockAt{&now}
	wal := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "wal"}}
	changed(t, api, wal, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-data" })
	if got := live.users(t, "data", podWith("wal"), podWith("data")); len(got) != 2 {
		t.Errorf("%d pods use the resource, want both", len(got))
	}
}

// users are the pods of those that use the volume.
func (l Live) users(t *testing.T, volume string, pods ...corev1.Pod) []corev1.Pod {
	t.Helper()
	var pv corev1.PersistentVolume
	if err := l.Reader.Get(t.Context(), client.ObjectKey{Name: volume}, &pv); err != nil {
		t.Fatal(err)
	}
	users, err := l.UsersOf(t.Context(), &pv, pods)
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// podWith is a pod on A that has a claim.
func podWith(claim string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod-" + claim, UID: types.UID(claim), CreationTimestamp: start}}
	pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume(claim, false)}
	return pod
}

// A claim is Lost while its PersistentVolume is replaced by another of its name. The controller manager looks again within a minute.
func TestOnlyTheClaimOfAYoungVolumeIsLost(t *testing.T) {
	t.Parallel()
	unbound := func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }
	for name, tc := range map[string]struct {
		age    time.Duration
		phase  corev1.PersistentVolumeClaimPhase
		change func(*corev1.PersistentVolume)
		want   bool
	}{
		"a volume that was just replaced":                {0, corev1.ClaimLost, nil, true},
		"a volume that was replaced nearly a minute ago": {time.Minute - time.Second, corev1.ClaimLost, nil, true},
		"a volume that was replaced a minute ago":        {time.Minute, corev1.ClaimLost, nil, false},
		"a claim that is bound again":                    {0, corev1.ClaimBound, nil, false},
		"a volume without a claim":                       {0, corev1.ClaimLost, unbound, false},
		"a claim that is gone":                           {0, corev1.ClaimLost, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = "gone" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live, api := claimsWorld(t)
			now := start.Time
			live.Clock, live.sightings = clockAt{&now}, NewSightings(clockAt{&now})
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
			if err := api.Status().Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+tc.phase+`"}}`))); err != nil {
				t.Fatal(err)
			}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "data"}}
			bind(pv, "shop", "data")
			orNothing(tc.change)(pv)
			live.sightings.Observe(pv, false)
			now = now.Add(tc.age)
			got, err := live.isClaimLost(t.Context(), pv)
			if err != nil || got != tc.want {
				t.Errorf("lost: %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}
