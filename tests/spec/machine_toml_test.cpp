// Machine files: those that are shipped and any other read back as written, units are taken everywhere, every key can
// be set, and what is refused is refused in one line that says what would be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "refusal_message.h"
#include "spec/machine/machine_spec.h"
#include "spec/text/quantity.h"

namespace lockstep {
namespace {

const std::filesystem::path kMachineFolder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs/machines";

// Every field another value than its default, some that no unit writes in few digits.
MachineSpec every_field() {
  MachineSpec m;
  m.name = "all \"of\" it";
  m.source = "made up";
  m.kind = MachineSpec::Kind::threads;
  m.nodes = 3;
  m.devices_per_node = 5;
  m.memory = (std::int64_t{7} << 30) + 1;
  m.peaks = {.fp64 = 1.5e9, .fp32 = 1e11 / 3, .bf16 = 2e12, .fp16 = 3e12, .fp8 = 4e15};
  m.products = {.best = 0.7, .half_m = 11, .half_n = 12.5, .half_k = 13};
  m.attention = {.forward = 0.3,
                 .backward = 1.0 / 3,
                 .half_pairs = 99,
                 .half_width = 12.5,
                 .forward_scores = 13,
                 .backward_scores = 19};
  m.copies = {{.size = 1000, .rate = 5e9}, {.size = 32768, .rate = 4e9 / 3}, {.size = 1 << 20, .rate = 1e9}};
  m.kernels = {{"norm", 0.5},          {"activation", 0.6}, {"rope", 4.2},      {"embedding", 0.7},
               {"cross_entropy", 0.8}, {"sum", 0.55},       {"optimizer", 1.1}, {"elementwise", 2}};
  m.launch = 1.5e-6;
  m.step = 2e-3;
  m.overlap_slowdown = 0.25;
  m.intra_node = {.bandwidth = 2e9,
                  .latency = 3e-6,
                  .collective_latency = 4e-6,
                  .efficiency = 0.5,
                  .pair_efficiency = 0.75,
                  .both_ways = 0.95};
  m.inter_node = {.bandwidth = 12.5e9,
                  .latency = 0,
                  .collective_latency = 7e-6,
                  .efficiency = 0.9,
                  .pair_efficiency = 0.8,
                  .both_ways = 0.55};
  m.spine_nodes = 2;
  m.oversubscription = 7;
  m.sum_rate = 6e9;
  m.copy_rate = 8e9;
  m.host_memory = std::int64_t{100} << 30;
  m.host_link = 50e9;
  m.host_copy = 100e9;
  m.disk_read = 2.5e9;
  m.disk_write = 1.8e9;
  m.disk = 3'000'000'000'001;
  m.hours_between_failures = 50000;
  m.restart_seconds = 300;
  return m;
}

const std::string kLeast = R"([machine]
devices_per_node = 1
memory = "16GiB"
[machine.peaks]
fp32 = "10TF"
[machine.copies]
1GiB = "500GB/s"
)";

void expect_machine_refused(const std::string& text, const std::vector<std::string>& words) {
  try {
    parse_machine(text, "some/m.toml");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const UserError& error) {
    expect_message(error, ExitCode::usage, "some/m.toml", words);
  }
}

std::string message_of_setting(MachineSpec m, const std::string& key, const std::string& value) {
  const MachineSpec before = m;
  try {
    set_machine_field(m, key, value);
  } catch (const UserError& error) {
    EXPECT_EQ(m, before) << key;  // a refused setting changes nothing
    expect_message(error, ExitCode::usage, "--set machine." + key, {});
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << key << " = " << value;
  return "";
}

TEST(MachineToml, EveryShippedMachineSaysItsSourcesAndReadsBack) {
  const std::vector<std::string> names = shipped_machines();
  EXPECT_THAT(names, testing::ElementsAre("a100-sxm", "h100-sxm", "h200", "laptop"));
  for (const std::string& name : names) {
    const MachineSpec machine = find_machine(name);
    EXPECT_EQ(machine.name, name);
    EXPECT_FALSE(machine.source.empty()) << name;
    EXPECT_EQ(parse_machine(to_toml(machine), "x"), machine) << to_toml(machine);
    EXPECT_EQ(read_machine(kMachineFolder / (name + ".toml")), machine);  // what is built in is the file
  }
}

TEST(MachineToml, ShippedClustersHaveTheirDataSheetsNumbers) {
  const MachineSpec a100 = find_machine("a100-sxm"), h100 = find_machine("h100-sxm");
  EXPECT_EQ(a100.devices_per_node, 8);
  EXPECT_EQ(a100.peaks.bf16, 312e12);
  EXPECT_EQ(a100.intra_node.bandwidth, 300e9);
  EXPECT_EQ(a100.inter_node.bandwidth, 200e9 / 8);
  EXPECT_EQ(h100.peaks.fp8, 1979e12);
  EXPECT_EQ(h100.intra_node.bandwidth, 450e9);
  EXPECT_EQ(h100.inter_node.bandwidth, 400e9 / 8);
  EXPECT_LE(a100.copies.back().rate, 2039e9);
  EXPECT_LE(h100.copies.back().rate, 3350e9);
}

TEST(MachineToml, EveryKeyIsTheFieldOfItsName) {
  EXPECT_EQ(parse_machine(R"([machine]
name = "all \"of\" it"
source = "made up"
kind = "threads"
nodes = 3
devices_per_node = 5
memory = 7516192769
launch = "1.5us"
step = "2ms"
overlap_slowdown = 0.25
spine_nodes = 2
oversubscription = 7
sum_rate = "6GB/s"
copy_rate = "8GB/s"
host_memory = "100GiB"
host_link = "50GB/s"
host_copy = "100GB/s"
disk_read = "2.5GB/s"
disk_write = "1.8GB/s"
disk = 3_000_000_000_001
hours_between_failures = 50000
restart_seconds = "300s"
[machine.peaks]
fp64 = "1.5GF"
fp32 = 33333333333.333332
bf16 = "2TFLOP/s"
fp16 = "3TF"
fp8 = "4PF"
[machine.products]
best = 0.7
half_m = 11
half_n = 12.5
half_k = 13
[machine.attention]
forward = 0.3
backward = 0.3333333333333333
half_pairs = 99
half_width = 12.5
forward_scores = 13
backward_scores = 19
[machine.intra_node]
bandwidth = "2GB/s"
latency = "3us"
collective_latency = "4us"
efficiency = 0.5
pair_efficiency = 0.75
both_ways = 0.95
[machine.inter_node]
bandwidth = "100Gbit/s"
latency = 0
collective_latency = "7us"
efficiency = 0.9
pair_efficiency = 0.8
both_ways = 0.55
[machine.copies]
1MiB = "1GB/s"
1000 = "5GB/s"
32KiB = 1333333333.3333333
[machine.kernels]
norm = 0.5
activation = 0.6
rope = 4.2
embedding = 0.7
cross_entropy = 0.8
elementwise = 2
optimizer = 1.1
sum = 0.55
)",
                          "x"),
            every_field());
}

TEST(MachineToml, AMachineWithEveryFieldReadsBackToTheSameBits) {
  const MachineSpec machine = every_field();
  EXPECT_EQ(parse_machine(to_toml(machine), "x"), machine) << to_toml(machine);
}

TEST(MachineToml, WhatIsLeftOutHasItsDefault) {
  MachineSpec least;
  least.name = "m";
  least.memory = std::int64_t{16} << 30;
  least.peaks.fp32 = 10e12;
  least.copies = {{.size = 0x1p30, .rate = 500e9}};
  EXPECT_EQ(parse_machine(kLeast, "some/m.toml"), least);
  EXPECT_EQ(parse_machine(to_toml(least), "x"), least) << to_toml(least);
}

TEST(MachineToml, NumbersMayHaveUnitsOrNone) {
  const auto memory = [](const std::string& value) {
    return parse_machine("[machine]\ndevices_per_node = 1\nmemory = " + value +
                             "\n[machine.peaks]\nfp32 = 1e12\n[machine.copies]\n1073741824 = 5e11",
                         "m")
        .memory;
  };
  EXPECT_EQ(memory("16"), 16);
  EXPECT_EQ(memory("1.6e10"), 16'000'000'000);
  EXPECT_EQ(memory("\"16B\""), 16);
  EXPECT_EQ(memory("\"16GB\""), 16'000'000'000);
  EXPECT_EQ(memory("\"1.5GiB\""), std::int64_t{3} << 29);
  EXPECT_EQ(memory("\"2TiB\""), std::int64_t{2} << 40);
  EXPECT_EQ(memory("\"0.0001GiB\""), 107374);  // to the nearest byte
  const auto quantity = [](const char* text, QuantityKind kind) {
    return parse_quantity(text, kind).value_or(std::nan(""));
  };
  EXPECT_EQ(quantity("312TF", QuantityKind::operations), 312e12);
  EXPECT_EQ(quantity("312TFLOP/s", QuantityKind::operations), 312e12);
  EXPECT_EQ(quantity("1.2PF", QuantityKind::operations), 1.2e15);
  EXPECT_EQ(quantity("200Gbit/s", QuantityKind::rate), 25e9);
  EXPECT_EQ(quantity("1KiB/s", QuantityKind::rate), 1024);
  EXPECT_EQ(quantity("3e3ns", QuantityKind::time), 3e-6);
  EXPECT_EQ(quantity("10us", QuantityKind::time), 1e-5);
  for (const char* text :
       {"", "GB/s", "1GB", "1 GB/s", "1gb/s", "1GB/s ", "infGB/s", "1e300PB/s", "nanGB/s", "0x1GB/s"})
    EXPECT_FALSE(parse_quantity(text, QuantityKind::rate)) << text;
}

TEST(MachineToml, QuantitiesAreWrittenInTheUnitOfFewestDigitsAndReadBack) {
  EXPECT_EQ(quantity_text(25e9, QuantityKind::rate), "25GB/s");
  EXPECT_EQ(quantity_text(11.35e9, QuantityKind::rate), "11.35GB/s");  // not 90.8Gbit/s
  EXPECT_EQ(quantity_text(2.4e9, QuantityKind::rate), "2.4GB/s");
  EXPECT_EQ(quantity_text(1.52e-3, QuantityKind::time), "1.52ms");
  EXPECT_EQ(quantity_text(0x1p30 * 80, QuantityKind::size), "80GiB");
  EXPECT_EQ(quantity_text(1e-5, QuantityKind::time), "10us");
  EXPECT_EQ(quantity_text(1e9 / 3, QuantityKind::rate), "333333333.3333333");
  for (const QuantityKind kind : {QuantityKind::size, QuantityKind::rate, QuantityKind::operations, QuantityKind::time})
    for (double value = 1.23e-9; value < 1e18; value *= 7.7) {
      const std::string text = quantity_text(value, kind);
      EXPECT_EQ(parse_quantity(text, kind).value_or(std::stod(text)), value) << text;
    }
}

TEST(MachineToml, EveryKeyCanBeSetByItself) {
  // Each of a machine with all fields to each of another: written keys are the list of all keys.
  MachineSpec from = every_field();
  MachineSpec to = every_field();
  to.name = "other", to.source = "elsewhere", to.nodes = 4, to.devices_per_node = 6, to.memory = 5;
  to.peaks = {1e12, 2e12, 3e12, 4e12, 5e12};
  to.products = {0.6, 1, 2, 3};
  to.attention = {0.1, 0.2, 4, 5, 6, 7};
  for (auto& copy : to.copies) copy.rate *= 2;
  for (auto& [kind, share] : to.kernels) share /= 2;
  to.launch = 1e-6, to.step = 1e-3, to.overlap_slowdown = 0.5, to.spine_nodes = 3, to.oversubscription = 2;
  to.intra_node = {3e9, 4e-6, 5e-6, 0.4, 0.3, 0.2};
  to.inter_node = {4e9, 5e-6, 6e-6, 0.3, 0.2, 0.1};
  to.sum_rate = 1e9, to.copy_rate = 2e9, to.host_memory = 6, to.host_link = 7e9, to.host_copy = 8e9;
  to.disk_read = 1e9, to.disk_write = 2e9, to.disk = 9, to.hours_between_failures = 10, to.restart_seconds = 11;
  std::istringstream lines(to_toml(to));
  int set = 0;
  for (std::string line, table; std::getline(lines, line);) {
    if (line.starts_with("["))
      table = line == "[machine]" ? "" : line.substr(9, line.size() - 10) + ".";
    else if (const std::size_t equals = line.find(" = "); equals != line.npos) {
      std::string value = line.substr(equals + 3);
      if (value.starts_with("\"")) value = value.substr(1, value.size() - 2);
      const MachineSpec before = from;
      set_machine_field(from, table + line.substr(0, equals), value);
      EXPECT_TRUE(from != before || line.starts_with("kind")) << line;
      ++set;
    }
  }
  EXPECT_EQ(from, to);
  EXPECT_EQ(set, 21 + 5 + 4 + 6 + 6 + 6 + 3 + 8);  // as many as there are fields
  set_machine_field(from, "kind", "threads");
}

TEST(MachineToml, SettingsTakeUnitsAndSeveralAtOnce) {
  MachineSpec m = find_machine("h200");
  set_machine_fields(m, std::vector<std::string>{"nodes=4", "inter_node.bandwidth=12.5GB/s", "spine_nodes=2",
                                                 "oversubscription=7", "copies.1GiB=4TB/s", "kernels.norm=0.5"});
  EXPECT_EQ(m.nodes, 4);
  EXPECT_EQ(m.inter_node.bandwidth, 12.5e9);
  EXPECT_EQ(m.inter_node.latency, MachineLink{}.latency);
  EXPECT_EQ(m.oversubscription, 7);
  EXPECT_EQ(m.copies.back().size, 0x1p30);
  EXPECT_EQ(m.kernels.at("norm"), 0.5);
}

TEST(MachineToml, RefusesWrongSettingsInOneLine) {
  const MachineSpec h200 = find_machine("h200");
  using testing::HasSubstr;
  EXPECT_EQ(
      message_of_setting(h200, "inter_node.bandwidth", "fast"),
      "--set machine.inter_node.bandwidth=fast: bandwidth = 'fast' is not allowed; it must be a rate as in 25GB/s, "
      "at least 1KB/s and at most 10PB/s");
  EXPECT_THAT(message_of_setting(h200, "inter_node.bandwith", "1GB/s"),
              HasSubstr("the nearest known one is 'bandwidth'"));
  EXPECT_THAT(message_of_setting(h200, "nodes", "4"), HasSubstr("4 nodes and no link between them; set "
                                                                "machine.inter_node.bandwidth as well"));
  EXPECT_THAT(message_of_setting(h200, "oversubscription", "7"), HasSubstr("set machine.spine_nodes as well"));
  EXPECT_THAT(message_of_setting(h200, "copies.100000KiB", "x"), HasSubstr("rate as in 25GB/s"));
  EXPECT_THAT(message_of_setting(h200, "copies.1024KiB", "1GB/s"), HasSubstr("the rate of 1MiB is there twice"));
  EXPECT_THAT(message_of_setting(h200, "memory", "-1GiB"), HasSubstr("a size as in 80GiB"));
  EXPECT_THAT(message_of_setting(h200, "memory", "nan"), HasSubstr("a size as in 80GiB"));
  EXPECT_THAT(message_of_setting(h200, "peaks.bf16", "inf"), HasSubstr("operations per second as in 312TF"));
  EXPECT_THAT(message_of_setting(h200, "copy_rate", "1GB/s"), HasSubstr("does nothing with kind = \"devices\""));
  EXPECT_THAT(message_of_setting(h200, "kernels.product", "1"), HasSubstr("unknown key 'product'"));
}

TEST(MachineToml, RefusesWhatIsWrongInAFile) {
  const auto top = [](const std::string& line) { return "[machine]\n" + line + kLeast.substr(9); };
  const auto under = [](const std::string& rest) { return kLeast + rest; };
  expect_machine_refused("", {"has no table [machine]"});
  expect_machine_refused("[machine]", {"has no 'devices_per_node'; add it"});
  expect_machine_refused("[machine]\ndevices_per_node = 1", {"has no 'memory'"});
  expect_machine_refused("[machine]\ndevices_per_node = 1\nmemory = 1", {"has no 'peaks'"});
  expect_machine_refused("[machine]\ndevices_per_node = 1\nmemory = 1\npeaks = 3\ncopies = 4", {"peaks", "a table"});
  expect_machine_refused("[machine]\ndevices_per_node = 1\nmemory = 1\n[machine.peaks]\n[machine.copies]\n1GiB = 1e9",
                         {"names no peak; add one, as in bf16 = \"312TF\""});
  expect_machine_refused("[machine]\ndevices_per_node = 1\nmemory = 1\n[machine.peaks]\nfp32 = 1e12\n[machine.copies]",
                         {"names no rate of a copy"});
  expect_machine_refused(top("memmory = 3"), {"m.toml:2: unknown key 'memmory' in [machine]", "'memory'"});
  expect_machine_refused(top("kind = \"gpu\""), {"m.toml:2", "one of \"devices\", \"threads\""});
  expect_machine_refused(top("nodes = 0"), {"m.toml:2", "a whole number from 1"});
  expect_machine_refused(top("nodes = 2.5"), {"m.toml:2", "a whole number from 1"});
  expect_machine_refused(top("nodes = \"two\""), {"m.toml:2", "a whole number from 1"});
  expect_machine_refused(top("nodes = 2"), {"2 nodes and no link between them"});
  expect_machine_refused(top("source = 3"), {"m.toml:2", "a string"});
  for (const char* value : {"-1", "nan", "inf", "\"10\"", "\"10GB\"", "true", "[1]", "2024-01-01", "\"\""})
    expect_machine_refused(top(std::string("launch = ") + value), {"m.toml:2: launch = ", "a time as in 10us"});
  expect_machine_refused(top("host_memory = \"2PB\""), {"m.toml:2", "at most 1PiB"});
  expect_machine_refused(top("oversubscription = 0.5"), {"m.toml:2", "at least 1 "});
  expect_machine_refused(top("oversubscription = 2"), {"set machine.spine_nodes as well"});
  expect_machine_refused(top("kind = \"threads\"") + "[machine.inter_node]\n", {"has no 'bandwidth'"});
  expect_machine_refused(under("[machine.inter_node]\nbandwidth = 0"), {"m.toml:9", "a rate as in 25GB/s"});
  expect_machine_refused(under("[machine.inter_node]\nbandwidth = 1e9\nefficiency = 1.5"), {"m.toml:10", "at most 1"});
  expect_machine_refused(under("[machine.inter_node]\nbandwidth = 1e9\nefficiency = 0"), {"m.toml:10", "above 0"});
  expect_machine_refused(under("[machine.inter_node]\nbandwidth = 1e9\nlatency = \"2s\""), {"m.toml:10", "at most 1s"});
  expect_machine_refused(under("[machine.inter_node]\nbandwidth = 1e9\nboth_ways = 0"), {"m.toml:10", "above 0"});
  expect_machine_refused(under("[machine.kernels]\nmatmul = 1"), {"m.toml:9: unknown key 'matmul'"});
  expect_machine_refused(under("[machine.kernels]\nnorm = 0"), {"m.toml:9", "above 0"});
  expect_machine_refused(under("[machine.products]\nbest = 3"), {"m.toml:9", "at most 2"});
  expect_machine_refused(under("big = 1e9"), {"m.toml:8: 'big' in [machine.copies] is no size"});
  expect_machine_refused(under("1KiB = 1e9\n1024 = 1e9"), {"the rate of 1KiB is there twice"});
  expect_machine_refused(under("[machine"), {"m.toml:8: not valid TOML"});
  expect_machine_refused(under("[model]\nx = 1"), {"m.toml:8: unknown table 'model'"});
  std::string two = kLeast;
  two.replace(two.find("node = 1"), 8, "node = 2");
  expect_machine_refused(two, {"2 devices per node and no link between them"});
  two.replace(0, 10, "[machine]\nkind = \"threads\"\n");
  expect_machine_refused(two, {"have no sum_rate or no copy_rate; set both"});
}

TEST(MachineToml, AMachineThatIsNotThereIsToldWithThoseThatAre) {
  try {
    find_machine("h1000");
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "there is no machine 'h1000'; name a machine file or one of a100-sxm, h100-sxm, h200, laptop");
  }
  EXPECT_THROW(find_machine("/no/such/file.toml"), UserError);
}

}  // namespace
}  // namespace lockstep
