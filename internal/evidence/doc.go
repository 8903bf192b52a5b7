// Package evidence tells which nodes are known to run the quorum that LINSTOR shows.
//
// LINSTOR shows the quorum that it wants. A node runs the one that it applied last, and LINSTOR does not send every change, nor does a node
// manage to apply each. What is observed:
//
//	| Term             | What it is                                                                                                        |
//	| ---------------- | ----------------------------------------------------------------------------------------------------------------- |
//	| Peers(X)         | the connections that X reported last, after two seconds of steady reports; one that LINSTOR has forgotten stays     |
//	| Votes(X)         | what X counts each of them as; where LINSTOR wants others, or has changed a disk since AppliedAt(X): all it may be  |
//	| AppliedAt(X)     | X has applied everything that LINSTOR wanted before: the newest of the evidence below                             |
//	| FencingSince(R)  | since when the quorum in force has fenced at every reading                                                        |
//	| X is confirmed   | AppliedAt(X) is not before FencingSince(R)                                                                        |
//
// What counts as evidence of X, while X lists each peer that LINSTOR wants it to have, and LINSTOR is not blind for it:
//
//	| Evidence                                                                | AppliedAt                                                |
//	| ----------------------------------------------------------------------- | -------------------------------------------------------- |
//	| X lists a peer that came later than X                                   | start of LINSTOR's last list of R that lacked the peer;  |
//	|                                                                         | ten seconds earlier if a person set the quorum           |
//	| X created its replica while LINSTOR was followed                        | start of LINSTOR's last list of R that lacked the replica |
//	| X's satellite went away and has been back, reporting, for a minute;     | the last moment at which X was seen not ONLINE           |
//	| if a person set the quorum, or it came without a replica: no new error  |                                                          |
//	| report since of a failed adjust of R or storage command (Reports)       |                                                          |
//	| first sight: ONLINE ten seconds after the first reading, with a sign of | none: what the first reading showed counts as applied    |
//	| life other than LINSTOR's word; if a person set the quorum: no error    |                                                          |
//	| report of a failed adjust of R                                          |                                                          |
//
// What another process has written of X (Tell) is over with evidence that is newer than that.
//
// Everything here is pure: values that are observed come in, with the moments at which they were.
package evidence
