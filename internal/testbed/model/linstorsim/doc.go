// Package linstorsim is a simulated LINSTOR controller with its satellites: the REST calls that a fail-over
// controller makes, a few of an administrator's, and the server-sent promotion events, as LINSTOR 1.33/1.34 puts
// them on the wire, over the DRBD of a [drbd.Cluster].
//
// What it shows is what satellites have reported, not what DRBD does: values freeze when a satellite is cut off,
// vanish when the controller gives it up, and come back with it. The network between controller and satellites
// is separate from DRBD's.
//
// What LINSTOR wants is kept apart from what the nodes run: its database holds the former, the DRBD cluster the latter,
// and a satellite's adjust takes the one to the other, when it is told, if nothing goes wrong.
//
// # Locking
//
// The server's lock may be held while the cluster is read. It must not be held while the cluster is changed,
// because the cluster tells the server of every change before the changing call returns.
//
// # What it leaves out
//
// Properties can be changed over REST, a node be lost, connected anew, evacuated and restored, disks be auto-placed, and diskless replicas
// made and deleted as the CSI driver does it; for all else the methods of [Server] stand for the administrator and LINSTOR's own automatics.
// Each node has one storage pool for disks, and a disk takes its whole size there from the beginning. There is no authentication.
// Automatic tie-breakers are an option, and evictions happen when [Server.Evict] says so.
//
// A disk that is added is there at once, without the time in which its resource has the flag DISK_ADD_REQUESTED; a LINSTOR that restarts
// in that time would take up the wait for its move again. An answer about an evacuation does not wait for satellites.
package linstorsim
