#!/usr/bin/env bash
# Shows how far a command is that compiles or tests for minutes, with a line about every ten seconds:
#
#	progress.sh build WHAT ARGUMENTS        runs go build, counts the packages that it compiles, and estimates the time left
#	progress.sh test PACKAGES gotestsum ... shows each package when it ends, and counts the tests
#
# It passes on whatever else the command prints, and ends with its status.
set -uo pipefail

mode=$1 of=$2
shift 2
pause=${PROGRESS_PAUSE:-10} # seconds
shown=$SECONDS

# ticking runs a command, and adds an empty line to its output once in a while: a shell cannot wait for a line and for the time.
ticking() {
	(while sleep 2 >/dev/null; do echo; done) 2>/dev/null &
	local ticker=$! code
	trap 'kill $ticker 2>/dev/null' EXIT
	"$@" 2>&1
	code=$?
	kill $ticker
	return $code
}

# say prints a line with the minutes and seconds since the start.
say() {
	printf '  %2d:%02d  %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$1"
	shown=$SECONDS
}

# due reports whether nothing was printed for a while.
due() { ((SECONDS - shown >= pause)); }

# count prints the number of packages that are not in the build cache, and shows on stderr how many modules are downloaded for that.
count() {
	local line packages=0 modules=0
	while IFS= read -r line; do
		case $line in
		'# '*) packages=$((packages + 1)) ;;
		'go: downloading '*) modules=$((modules + 1)) ;;
		esac
		due || continue
		if ((modules > 0)); then say "$modules modules downloaded" >&2; else say "looking for what is not built yet" >&2; fi
	done < <(ticking go build -n "$@" | grep --line-buffered -E '^(# [^ ]+$|go: |$)')
	echo $packages
}

# left prints about how long the rest takes, if all packages take as long as those before.
left() {
	local seconds=$(($1 * ($3 - $2) / $2))
	if ((seconds < 60)); then echo "less than a minute"; else echo "about $(((seconds + 30) / 60)) min"; fi
}

build() {
	local line total began done=0
	echo "building $of"
	total=$(count "$@")
	began=$SECONDS shown=$SECONDS
	if ((total > 20)); then say "$total packages to compile"; fi
	ticking go build -v "$@" | while IFS= read -r line; do
		if [[ $line =~ ^[^\ :]+$ ]]; then done=$((done + 1)); elif [[ $line ]]; then echo "$line"; fi
		due || continue
		if ((done >= total)); then
			say "the last packages, and linking"
		elif ((done > 0)); then
			say "$done of $total packages, $(left $((SECONDS - began)) $done "$total") left"
		else
			say "$total packages to compile"
		fi
	done
}

run() {
	local line packages=0 tests=0 last=
	echo "testing $of packages"
	ticking "$@" | while IFS= read -r line; do
		if [[ $line =~ ^(PASS|SKIP|FAIL)\ .*\([0-9.]+s\)$ ]]; then
			tests=$((tests + 1)) last=$line
			if [[ $line == FAIL* ]]; then say "$line"; fi
		elif [[ $line =~ ^(PASS|FAIL)\ [^\ ]+(\ \([^\)]*\))?$ ]]; then
			packages=$((packages + 1))
			say "[$packages/$of] $line"
		elif [[ $line ]]; then
			echo "$line"
		fi
		if due; then say "$packages of $of packages, $tests tests${last:+; the last: $last}"; fi
	done
}

case $mode in
build) build "$@" ;;
test) run "$@" ;;
esac
