"""Which shell commands count as writing: only those that surely do."""

from __future__ import annotations

import time

import pytest

from loopfence.integrations.shell import writes

WRITING = [
    "echo a > b",
    "echo a >> b",
    "make &> log",
    "cat <<EOF > x\na\nEOF",
    "cat > x <<'EOF'\na\nEOF",
    "sed -i s/a/b/ f",
    "sed -n -i.bak p f",
    "sed --in-place s/a/b/ f",
    "perl -pi -e s/a/b/ f",
    "git commit -m 'x'",
    "git -C dir -c user.name=x add .",
    "cd x && rm -rf y",
    "false || touch x",
    "cat a; mv a b",
    "pip install x",
    "python3.12 -m pip install x",
    "sudo apt-get install -y x",
    "FOO=1 npm ci",
    "ls | xargs -0 rm",
    "make 2>&1 | tee log",
    "/bin/rm f",
    "apply_patch <<'EOF'\n*** Begin Patch\nEOF",
    "if true; then mv a b; fi",
    "echo $(touch x)",
    "cat <<A\nx\nA\nrm y",
    "kubectl apply -f x.yaml",
]
READING = [
    "",
    "cat a",
    "grep 'a > b' f",
    'echo "a > b; rm c"',
    "ls 2>&1",
    "ls > /dev/null 2>&1",
    "make",
    "pytest -q",
    "npm test",
    "npm run install",
    "git status",
    "git log --grep add",
    "git diff",
    "git -C add log",
    "echo 'rm x'",
    "echo rm",
    "echo \\> x",
    "sed -n 1,5p f",
    "awk '{print > 0}' f",
    "python - <<EOF\nopen('a', 'w') > 3\nrm x\nEOF",
    "cat <<-'EOF'\n\trm x\n\tEOF",
    "cat <<< x",
    "python -m pytest",
    "kubectl get pods",
    "perl -ne print f",
    "my-tool --install rm",
]


@pytest.mark.parametrize("command", WRITING)
def test_it_writes(command: str) -> None:
    assert writes(command)


@pytest.mark.parametrize("command", READING)
def test_it_does_not_surely_write(command: str) -> None:
    assert not writes(command)


@pytest.mark.parametrize(
    "part", ["'", '"', "\\'", '"\\', "<<a ", ">", "$(", "a=", "-x ", "<<EOF\n", "> /dev/", "'\"\\"]
)
def test_a_hostile_command_is_judged_in_linear_time(part: str) -> None:
    started = time.process_time()
    writes(part * (200_000 // len(part)))
    assert time.process_time() - started < 5
