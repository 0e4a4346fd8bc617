// launch.json: what is written comes back, and nothing that is read can do harm.
#include "telemetry/launch_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/program.h"
#include "telemetry/refused_text.h"

namespace lockstep::tests {
namespace {

using Json = nlohmann::json;

LaunchState launch_of_two_hosts() {
  return {
      .epoch = 7,
      .state = LaunchPhase::recovering,
      .leader = "node \"a\" é",
      .restarts = 6,
      .layout = "dp=2,pp=2",
      .since = 1.7e9 + 1.0 / 7,
      .hosts =
          {{.name = "a", .address = "10.0.0.1:7", .pid = 11, .role = HostRole::leader, .heard = 1.7e9, .ranks = {0, 1}},
           {.name = "b", .pid = 12, .role = HostRole::lost, .ranks = {}}},
      .fault =
          LaunchFault{.time = 1.7e9 + 0.1, .step = 40, .text = "rank 1 was ended by signal 9", .cost_seconds = 2.5},
      .goodput = 0.875,
      .copy_every = 4};
}

std::string launch_refusal(const std::string& text) {
  return refused_text([&] { parse_launch_state(text, "here"); });
}

TEST(LaunchStateFile, ComesBackToTheLastBit) {
  LaunchState state = launch_of_two_hosts();
  const std::string line = to_json_line(state);
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  const LaunchState read = parse_launch_state(line, "here");
  EXPECT_EQ(to_json_line(read), line);
  EXPECT_EQ(std::tie(read.epoch, read.state, read.leader, read.restarts, read.layout, read.since),
            std::tie(state.epoch, state.state, state.leader, state.restarts, state.layout, state.since));
  ASSERT_EQ(read.hosts.size(), 2u);
  EXPECT_EQ(read.hosts[0].ranks, state.hosts[0].ranks);
  EXPECT_EQ(read.hosts[0].address, state.hosts[0].address);
  EXPECT_EQ(read.hosts[1].role, HostRole::lost);
  ASSERT_TRUE(read.fault);
  EXPECT_EQ(read.fault->text, state.fault->text);
  EXPECT_EQ(read.fault->cost_seconds, 2.5);
  EXPECT_EQ(read.goodput, 0.875);
  EXPECT_EQ(read.copy_every, 4);
  const LaunchState empty = parse_launch_state(to_json_line(LaunchState{}), "here");
  EXPECT_FALSE(empty.fault || empty.goodput || empty.copy_every);
  for (int phase = 0; phase < kLaunchPhases; ++phase) {
    state.state = static_cast<LaunchPhase>(phase);
    EXPECT_EQ(parse_launch_state(to_json_line(state), "here").state, state.state);
  }
  for (int role = 0; role < kHostRoles; ++role) {
    state.hosts[0].role = static_cast<HostRole>(role);
    EXPECT_EQ(parse_launch_state(to_json_line(state), "here").hosts[0].role, state.hosts[0].role);
  }
}

TEST(LaunchStateFile, IsReplacedWholeAndReadFromADisk) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_launch_state(launch_file(folder.path())));
  write_launch_state(launch_file(folder.path()), launch_of_two_hosts());
  EXPECT_EQ(to_json_line(*read_launch_state(folder / "launch.json")), to_json_line(launch_of_two_hosts()));
  write_launch_state(launch_file(folder.path()), {});
  EXPECT_EQ(read_launch_state(folder / "launch.json")->epoch, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "nothing is left beside it";
  EXPECT_THROW(write_launch_state(folder / "no/launch.json", {}), EnvironmentError);
}

TEST(LaunchStateFile, TextsOfAnyBytesAndLengthAreWrittenAndRead) {
  for (const std::string& unit : {std::string("\xff"), std::string("é"), std::string("\0", 1), std::string("a")}) {
    std::string text;
    for (int i = 0; i < 9000; ++i) text += unit;
    LaunchState state = launch_of_two_hosts();
    state.leader = state.layout = state.fault->text = state.hosts[0].name = text;
    const LaunchState read = parse_launch_state(to_json_line(state), "here");
    EXPECT_LE(read.fault->text.size(), kMostLaunchTextBytes);
    EXPECT_GT(read.fault->text.size(), kMostLaunchTextBytes - 4);
  }
}

TEST(HostileLaunchState, CutAnywhereIsRefused) {
  const std::string line = to_json_line(launch_of_two_hosts());
  for (std::size_t size = 0; size + 1 < line.size(); ++size)
    EXPECT_NE(launch_refusal(line.substr(0, size)), "") << size;
  EXPECT_EQ(launch_refusal(line.substr(0, line.size() - 1)), "");
}

TEST(HostileLaunchState, WithAnyByteChangedIsReadOrRefused) {
  const std::string line = to_json_line(launch_of_two_hosts());
  for (std::size_t at = 0; at < line.size(); ++at)
    for (int byte = 0; byte < 256; byte += 3) {
      std::string other = line;
      other[at] = static_cast<char>(byte);
      launch_refusal(other);
    }
}

// Each field of each object with values of other types and out of range.
void expect_fields_are_checked(const Json& file, const Json::json_pointer& at) {
  const Json values[] = {true, -1, 1e300, 18446744073709551615u, "text", Json::array({-1}), Json::object(), nullptr};
  for (const auto& [key, unused] : file.at(at).items()) {
    int refused = 0;
    for (const Json& value : values) {
      Json other = file;
      other.at(at)[key] = value;
      refused += !launch_refusal(other.dump()).empty();
    }
    EXPECT_GE(refused, 5) << at.to_string() << " " << key;
    Json other = file;
    other.at(at).erase(key);
    EXPECT_NE(launch_refusal(other.dump()).find("has no " + key), std::string::npos) << at.to_string() << " " << key;
  }
}

TEST(HostileLaunchState, WithAValueOfAnotherTypeOrRangeIsRefused) {
  const Json file = Json::parse(to_json_line(launch_of_two_hosts()));
  expect_fields_are_checked(file, Json::json_pointer(""));
  expect_fields_are_checked(file, Json::json_pointer("/hosts/1"));
  expect_fields_are_checked(file, Json::json_pointer("/fault"));
  const auto changed = [&](const char* pointer, const Json& value) {
    Json other = file;
    other[Json::json_pointer(pointer)] = value;
    return launch_refusal(other.dump());
  };
  EXPECT_NE(changed("/version", 2), "") << "a later one";
  EXPECT_NE(changed("/state", "sleeping"), "");
  EXPECT_NE(changed("/hosts/0/role", "king"), "");
  EXPECT_NE(changed("/hosts/0/ranks/0", kMostLaunchRanks), "");
  EXPECT_NE(changed("/hosts/0/ranks/0", 0.5), "");
  EXPECT_NE(changed("/hosts", Json::array({7})), "");
  EXPECT_NE(changed("/goodput", 1.001), "");
  EXPECT_NE(changed("/copy_every", 0), "");
  EXPECT_NE(changed("/fault/text", std::string(kMostLaunchTextBytes + 1, 'a')), "");
  EXPECT_EQ(changed("/other", 3), "") << "what a later version adds";
  EXPECT_EQ(changed("/hosts/0/other", "x"), "");
  const std::string line = file.dump();
  EXPECT_NE(launch_refusal(line + std::string(1, '\0')), "");
  EXPECT_NE(launch_refusal(line + "{}"), "");
  EXPECT_NE(launch_refusal(line + std::string(kMostLaunchBytes, ' ')), "");
  EXPECT_NE(launch_refusal(std::string(100'000, '[')), "");
}

TEST(HostileLaunchState, OfMoreRanksThanThereCanBeIsRefused) {
  LaunchState state = launch_of_two_hosts();
  state.hosts[0].ranks.assign(kMostLaunchRanks, 1);
  EXPECT_EQ(launch_refusal(to_json_line(state)), "");
  state.hosts[1].ranks = {1};
  EXPECT_NE(launch_refusal(to_json_line(state)), "");
}

TEST(HostileLaunchState, ThatIsNoFileIsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::ofstream(folder / "empty");
  std::ofstream(folder / "large") << to_json_line(launch_of_two_hosts());
  std::filesystem::resize_file(folder / "large", std::uintmax_t{1} << 40);  // a hole: no disk is used
  for (const std::string& path :
       {folder.path().string(), std::string("/dev/zero"), folder / "pipe", folder / "empty", folder / "large"})
    EXPECT_THROW(read_launch_state(path), UserError) << path;
}

}  // namespace
}  // namespace lockstep::tests
