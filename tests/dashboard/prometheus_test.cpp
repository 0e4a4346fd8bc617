// What Prometheus scrapes is in its text exposition format, whatever runs are called.
#include "dashboard/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "dashboard/run_answers.h"
#include "dashboard/written_run.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string value;
};

// A reader of the format as its page describes it: comments, names, labels with three escapes, a number.
std::vector<Sample> read_exposition(const std::string& text, std::set<std::string>& typed) {
  std::vector<Sample> samples;
  std::istringstream in(text);
  static const std::regex kComment("# (HELP [a-z_]+ .*|TYPE ([a-z_]+) (gauge|counter))"),
      kName("[a-zA-Z_:][a-zA-Z0-9_:]*");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) {
      std::smatch match;
      EXPECT_TRUE(std::regex_match(line, match, kComment)) << line;
      if (match[2].matched && !typed.insert(match[2]).second) ADD_FAILURE() << line << " twice";
      continue;
    }
    Sample sample;
    std::size_t at = line.find('{');
    EXPECT_NE(at, line.npos) << line;
    sample.name = line.substr(0, at++);
    EXPECT_TRUE(std::regex_match(sample.name, kName)) << line;
    EXPECT_TRUE(typed.contains(sample.name)) << line;
    while (at < line.size() && line[at] != '}') {
      const std::size_t equal = line.find("=\"", at);
      if (equal == line.npos) {
        ADD_FAILURE() << "no label from " << at << " on in " << line;
        return samples;
      }
      const std::string label = line.substr(at, equal - at);
      std::string value;
      for (at = equal + 2; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] != '\\') {
          value += line[at];
        } else {
          ++at;
          EXPECT_TRUE(line[at] == '\\' || line[at] == '"' || line[at] == 'n') << line;
          value += line[at] == 'n' ? '\n' : line[at];
        }
      }
      sample.labels[label] = value;
      ++at;
      if (at < line.size() && line[at] == ',') ++at;
    }
    EXPECT_EQ(line.substr(at, 2), "} ") << line;
    sample.value = line.substr(std::min(at + 2, line.size()));
    std::size_t used = 0;
    std::stod(sample.value, &used);
    EXPECT_EQ(used, sample.value.size()) << line;
    samples.push_back(sample);
  }
  return samples;
}

TEST(Exposition, HasEachRunsNumbersUnderItsName) {
  const TemporaryFolder folder;
  write_run(folder.path() / "a", 12);
  const std::string name = "odd \"name\" with \\ and\nline";
  RunReader reader(folder.path() / "a");
  const RunRecords& run = reader.update();
  std::set<std::string> typed;
  const auto samples = read_exposition(exposition({summarize("a", run), summarize(name, run)}), typed);
  std::map<std::string, std::vector<const Sample*>> by_name;
  for (const Sample& sample : samples) by_name[sample.name].push_back(&sample);
  ASSERT_EQ(by_name["lockstep_loss"].size(), 2u);
  EXPECT_EQ(std::stod(by_name["lockstep_loss"][0]->value), written_loss(12));
  EXPECT_EQ(by_name["lockstep_loss"][0]->labels.at("run"), "a");
  EXPECT_EQ(by_name["lockstep_loss"][1]->labels.at("run"), name);
  EXPECT_EQ(std::stod(by_name["lockstep_step"][0]->value), 12);
  EXPECT_EQ(std::stod(by_name["lockstep_mfu_ratio"][0]->value), 0.375);
  EXPECT_EQ(std::stod(by_name["lockstep_eval_accuracy_ratio"][0]->value), 0.3125);
  double compute = 0, ended = 0, weights = 0, states = 0;
  for (const Sample* s : by_name["lockstep_use_seconds"])
    if (s->labels.at("use") == "compute" && s->labels.at("run") == "a") compute = std::stod(s->value);
  for (const Sample* s : by_name["lockstep_state"])
    if (s->labels.at("run") == "a") {
      states += std::stod(s->value);
      if (s->labels.at("state") == "ended") ended = std::stod(s->value);
    }
  for (const Sample* s : by_name["lockstep_memory_bytes"])
    if (s->labels.at("tag") == "weights") weights = std::stod(s->value);
  EXPECT_NEAR(compute, 0.2, 1e-6);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(states, 1);
  EXPECT_EQ(weights, 1000);
}

TEST(Exposition, HasWhatKeepsTheRunGoingAndWhatFaultsCost) {
  const TemporaryFolder folder;
  write_run(folder.path(), 12);
  std::ofstream(folder / "events.jsonl")
      << R"({"time": 1.7e9, "rank": 0, "kind": "start", "step": 0, "seconds": 1, "text": ""})"
      << "\n"
      << R"({"time": 1700000003.5, "rank": 1, "kind": "slow", "step": 12, "seconds": 1, "text": ""})"
      << "\n";
  write_launch_state(launch_file(folder.path()),
                     {.epoch = 3,
                      .state = LaunchPhase::ended,
                      .restarts = 2,
                      .hosts = {{.name = "a", .role = HostRole::leader}, {.name = "b", .role = HostRole::spare}},
                      .fault = LaunchFault{.time = 1.7e9, .step = 4, .text = "gone", .cost_seconds = 1.5}});
  RunReader reader(folder.path());
  const RunSummary summary = summarize("a", reader.update());
  std::set<std::string> typed;
  std::map<std::string, double> values;
  for (const Sample& sample : read_exposition(exposition({summary}), typed)) {
    std::string name = sample.name;
    for (const auto& [label, value] : sample.labels)
      if (label != "run") name += " " + value;
    values[name] = std::stod(sample.value);
  }
  EXPECT_EQ(values.at("lockstep_epoch"), 3);
  EXPECT_EQ(values.at("lockstep_restarts"), 2);
  EXPECT_EQ(values.at("lockstep_hosts leader"), 1);
  EXPECT_EQ(values.at("lockstep_hosts spare"), 1);
  EXPECT_EQ(values.at("lockstep_hosts lost"), 0);
  EXPECT_EQ(values.at("lockstep_slow_ranks"), 1);
  EXPECT_EQ(values.at("lockstep_last_fault_cost_seconds"), 1.5);
  EXPECT_EQ(values.at("lockstep_last_fault_timestamp_seconds"), 1.7e9);
  double parts = 0;
  for (const auto& [name, value] : values)
    if (name.starts_with("lockstep_time_seconds ")) parts += value;
  EXPECT_NEAR(values.at("lockstep_time_seconds steps") / parts, values.at("lockstep_goodput_ratio"), 1e-9);
  const nlohmann::json json = summary_json(summary);
  EXPECT_EQ(json["launch"]["epoch"], 3);
  EXPECT_EQ(json["launch"]["hosts"][1]["role"], "spare");
  EXPECT_EQ(json["launch"]["fault"]["text"], "gone");
}

TEST(Exposition, LeavesOutWhatIsNotKnown) {
  RunSummary summary{.name = "new"};
  std::set<std::string> typed;
  for (const Sample& sample : read_exposition(exposition({summary}), typed)) {
    EXPECT_NE(sample.name, "lockstep_loss");
    EXPECT_NE(sample.name, "lockstep_step");
    EXPECT_NE(sample.name, "lockstep_epoch");
    EXPECT_NE(sample.name, "lockstep_goodput_ratio");
  }
}

TEST(Exposition, LabelsAreUtf8) {
  EXPECT_EQ(label_text("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
  EXPECT_EQ(label_text("\xff"), "\xEF\xBF\xBD");
  EXPECT_EQ(label_text("ü"), "ü");
}

}  // namespace
}  // namespace lockstep::tests
