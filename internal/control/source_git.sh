# Usage: git-source URL DIRECTORY DEPTH REVISION ORIGIN [credentials]
# With credentials, stdin holds a user name and a password, a line each. They
# stay in this shell: git asks for them through a pipe that only it inherits,
# and only for ORIGIN.
url=$1 dir=$2 depth=$3 revision=$4 origin=$5
user= password=
if [ "${6:-}" ]; then
	IFS= read -r user
	IFS= read -r password
fi
exec </dev/null

run_git() {
	if [ -z "$user$password" ]; then
		git "$@"
		return
	fi
	git -c credential.helper= \
		-c "credential.$origin.helper=!f() { test \"\$1\" = get && cat <&3; }; f" "$@" 3<<EOF
username=$user
password=$password
EOF
}

if [ -z "$revision" ]; then
	run_git clone --quiet ${depth:+--depth "$depth"} -- "$url" "$dir"
	exit
fi
# A branch or a tag.
if run_git clone --quiet ${depth:+--depth "$depth"} --branch "$revision" -- "$url" "$dir" 2>/dev/null; then
	exit 0
fi
# A commit: most servers give it out by its full name, and all within the
# whole history.
git init --quiet -- "$dir" && cd "$dir" && git remote add origin "$url" || exit
if run_git fetch --quiet ${depth:+--depth "$depth"} origin "$revision" 2>/dev/null; then
	git checkout --quiet --detach FETCH_HEAD
	exit
fi
run_git fetch --quiet --tags origin && git checkout --quiet --detach "$revision"
