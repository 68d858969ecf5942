#!/usr/bin/env python3
"""Counts swamp's instructions per element on a CPU that qemu-user emulates.

usage: bench/instructions.py [PRESET...]

Runs build/PRESET/bin/swamp_bench_instructions (default: aarch64) with each of
its operations and ISAs, and prints instructions per element, next to the fewest
that could load and store the operands in vectors of 16 bytes. Needs cc, for a
plugin of qemu. The counts are exact, so no machine of that kind is needed; they
are no times.
"""
import os
import re
import subprocess
import sys
import tempfile

VECTOR_BYTES = 16

# Adds the instructions of each executed block. The declarations are those of
# qemu-plugin.h (API version 1, qemu 4.2 and later), which Debian does not have.
PLUGIN = r"""
#include <inttypes.h>
#include <stdio.h>
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
typedef uint64_t id_t_;
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int,
                                              void *, uint64_t);
void qemu_plugin_register_vcpu_tb_trans_cb(
    id_t_, void (*)(id_t_, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(id_t_, void (*)(id_t_, void *), void *);
static uint64_t executed;
static void translated(id_t_ id, struct qemu_plugin_tb *tb) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(tb, 0, &executed,
                                           qemu_plugin_tb_n_insns(tb));
}
static void ended(id_t_ id, void *path) {
  (void)id;
  FILE *file = fopen(path, "w");
  if (!file) return;
  fprintf(file, "%" PRIu64, executed);
  fclose(file);
}
__attribute__((visibility("default"))) int qemu_plugin_install(
    id_t_ id, const void *info, int count, char **words) {
  static char path[4096];
  (void)info;
  snprintf(path, sizeof path, "%s", count ? words[0] + 5 : "instructions");
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, path);
  return 0;
}
"""


class Counter:
    def __init__(self, preset, folder):
        self.program = f"build/{preset}/bin/swamp_bench_instructions"
        cache = open(f"build/{preset}/CMakeCache.txt").read()
        architecture = re.search("SWAMP_ARCHITECTURE.*=(.+)", cache).group(1)
        options = re.search("SWAMP_QEMU_OPTIONS.*=(.*)", cache).group(1)
        self.emulator = [f"qemu-{architecture}", "-L",
                         f"/usr/{architecture}-linux-gnu",
                         *filter(None, options.split(";"))]
        self.folder = folder
        self.environment = {**os.environ, "SWAMP_BACKEND": "serial"}

    def output(self, *words):
        return subprocess.run([*self.emulator, self.program, *words], check=True,
                              env=self.environment, capture_output=True,
                              text=True).stdout

    def instructions(self, *words):
        result = f"{self.folder}/count"
        plugin = f"{self.folder}/plugin.so,path={result}"
        subprocess.run([*self.emulator, "-plugin", plugin, self.program, *words],
                       check=True, env=self.environment)
        return int(open(result).read())

    def isas(self):
        info = subprocess.run([*self.emulator,
                               self.program.replace("_bench_instructions", ""),
                               "info", "--json"], check=True,
                              env=self.environment, capture_output=True,
                              text=True).stdout
        names = re.search(r'"isa":\[([^]]*)\]', info).group(1)
        return names.replace('"', "").split(",")


def main():
    presets = sys.argv[1:] or ["aarch64"]
    if presets[0].startswith("-"):
        print(__doc__.strip())
        sys.exit(0 if presets[0] in ("-h", "--help") else 2)
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-",
                        "-o", f"{folder}/plugin.so"], input=PLUGIN, text=True,
                       check=True)
        for preset in presets:
            counter = Counter(preset, folder)
            for isa in counter.isas():
                counter.environment["SWAMP_ISA"] = isa
                print(f"{preset}, {isa}:{'':<13} instructions  load, store  ratio")
                for line in counter.output().splitlines():
                    name, elements, size = line.split()
                    few, many = (counter.instructions(name, n) for n in "26")
                    each = (many - few) / 4 / int(elements)
                    fewest = int(size) / VECTOR_BYTES
                    print(f"  {name:<25} {each:12.2f} {fewest:12.2f} "
                          f"{each / fewest:6.1f}", flush=True)


if __name__ == "__main__":
    main()
