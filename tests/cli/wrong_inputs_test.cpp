// Every wrong input of wrong_inputs.txt ends with the one line and the exit code that stand there, writes nothing, and
// what its line proposes works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "data/token_file_writer.h"
#include "support/error_line.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTable = LOCKSTEP_SOURCE_DIR "/tests/cli/wrong_inputs.txt";

// Root may write anywhere; for inputs that are about permissions it becomes nobody.
const std::string kAsUser =
    "as_user() { if [ $(id -u) = 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; else \"$@\"; fi; "
    "}\n";

struct Row {
  int line = 0;
  std::string command, message, remedy, none;
  int code = -1;
};

struct Table {
  std::string preparation;
  std::vector<Row> rows;
  std::string fault;
};

Table read_table() {
  Table table;
  std::ifstream in(kTable);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const char kind = line.empty() ? '#' : line[0];
    const bool row = !table.rows.empty();
    const std::string rest = line.size() > 2 ? line.substr(2) : "";
    if (kind == '#' || kind == '=')
      continue;
    else if (kind == '%')
      table.preparation += rest + "\n";
    else if (kind == '$')
      table.rows.push_back({.line = number, .command = rest, .message = "", .remedy = "", .none = ""});
    else if (row && kind >= '0' && kind <= '9')
      table.rows.back().code = kind - '0', table.rows.back().message = rest;
    else if (row && kind == '>')
      table.rows.back().remedy = rest;
    else if (row && kind == '-')
      table.rows.back().none = rest;
    else
      table.fault = "line " + std::to_string(number) + ": " + line;
  }
  return table;
}

const Table& table() {
  static const Table read = read_table();
  return read;
}

// The pattern of a message: … is any text, {} is kept.
std::regex pattern_of(const std::string& message) {
  static const std::string kAny = "…", kKept = "{}";
  std::string text;
  for (std::size_t at = 0; at < message.size();) {
    const bool any = message.compare(at, kAny.size(), kAny) == 0, kept = message.compare(at, kKept.size(), kKept) == 0;
    if (any || kept) {
      text += any ? ".*?" : "(.+?)";
      at += any ? kAny.size() : kKept.size();
      continue;
    }
    if (std::string_view("^$\\.*+?()[]{}|/").find(message[at]) != std::string_view::npos) text += '\\';
    text += message[at++];
  }
  return std::regex(text);
}

// Names, sizes, kinds and times of all that is in a folder.
using Snapshot = std::map<std::string, std::tuple<mode_t, off_t, std::int64_t>>;
Snapshot snapshot_of(const fs::path& folder) {
  Snapshot all;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    struct stat status {};
    lstat(entry.path().c_str(), &status);
    all[entry.path().string()] = {status.st_mode, S_ISDIR(status.st_mode) ? 0 : status.st_size,
                                  status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
  }
  return all;
}

class WrongInputs : public ::testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    scratch_ = new TemporaryFolder;
    TokenFileWriter small(*folder_ / "small.tokens", 100);  // as a tokenizer of few ids would write it
    small.add(std::vector<std::int32_t>(500, 7));
    small.finish();
    const Outcome o = run("set -e\n" + table().preparation);
    ASSERT_EQ(o.code, 0) << o.err;
    may_change_user_ = run("as_user lockstep --version").code == 0;
    before_ = new Snapshot(snapshot_of(folder_->path()));
  }
  static void TearDownTestSuite() {
    delete folder_;
    delete scratch_;
    delete before_;
  }

  static Outcome run(const std::string& command) {
    const std::string where = fs::path(LOCKSTEP_BINARY).parent_path().string();
    return Program({}, folder_->path(),
                   {"/bin/bash", "-c",
                    "export PATH='" + where + "':$PATH OUT='" + (*scratch_ / "out") +
                        "' GOLDEN='" LOCKSTEP_SOURCE_DIR "/tests/golden'\n" + kAsUser + command})
        .wait();
  }

  static TemporaryFolder *folder_, *scratch_;
  static Snapshot* before_;
  static bool may_change_user_;
};
TemporaryFolder* WrongInputs::folder_ = nullptr;
TemporaryFolder* WrongInputs::scratch_ = nullptr;
Snapshot* WrongInputs::before_ = nullptr;
bool WrongInputs::may_change_user_ = false;

TEST_P(WrongInputs, AreToldInOneLineWithARemedyThatWorks) {
  const Row& row = GetParam();
  SCOPED_TRACE(std::string(kTable) + ":" + std::to_string(row.line) + ": " + row.command);
  if (row.command.starts_with("as_user") && !may_change_user_) GTEST_SKIP() << "nobody may not run " LOCKSTEP_BINARY;
  const Outcome wrong = run(row.command);
  EXPECT_EQ(wrong.code, row.code) << wrong.err;
  EXPECT_EQ(flaw_of_line(wrong.err), "") << wrong.err;
  EXPECT_EQ(snapshot_of(folder_->path()), *before_) << "it wrote something";
  EXPECT_TRUE(fs::is_empty(scratch_->path())) << "it wrote $OUT";
  const std::string said = wrong.err.substr(0, wrong.err.find('\n'));
  std::smatch kept;
  ASSERT_TRUE(std::regex_match(said, kept, pattern_of("lockstep: " + row.message)))
      << "  it said: " << said << "\n  not:     lockstep: " << row.message;
  if (!row.remedy.empty()) {
    std::string remedy = row.remedy;
    for (std::size_t i = 1; i < kept.size(); ++i) {
      const std::string mark = "{" + std::to_string(i) + "}";
      for (std::size_t at; (at = remedy.find(mark)) != remedy.npos;) remedy.replace(at, mark.size(), kept[i]);
    }
    const Outcome mended = run(remedy);
    EXPECT_EQ(mended.code, 0) << "the remedy '" << remedy << "' ended with " << mended.err;
  }
  fs::remove_all(*scratch_ / "out");
}

std::string name_of_row(const ::testing::TestParamInfo<Row>& info) { return "Line" + std::to_string(info.param.line); }
INSTANTIATE_TEST_SUITE_P(Table, WrongInputs, ::testing::ValuesIn(table().rows), name_of_row);

TEST(WrongInputsTable, HoldsAtLeast240DifferentInputsOfEveryCommand) {
  EXPECT_EQ(table().fault, "");
  EXPECT_GE(table().rows.size(), 240u);
  std::set<std::string> commands;
  for (const Row& row : table().rows) {
    EXPECT_TRUE(commands.insert(row.command).second) << "line " << row.line << " is there twice";
    EXPECT_TRUE(row.code >= 1 && row.code <= 6) << "line " << row.line;
    EXPECT_NE(row.remedy.empty(), row.none.empty()) << "line " << row.line << " needs one of > and -";
    // What a remedy takes from the message is marked there.
    const auto marks = [](const std::string& text, const std::string& mark) { return text.find(mark) != text.npos; };
    EXPECT_TRUE(!marks(row.remedy, "{1}") || marks(row.message, "{}")) << "line " << row.line;
  }
  for (const char* name : {"train", "plan", "schedule", "generate", "export", "tokenize", "inspect", "bench", "compare",
                           "verify", "dashboard"})
    EXPECT_GE(std::ranges::count_if(table().rows,
                                    [&](const Row& row) {
                                      return row.command.find("lockstep " + std::string(name)) != std::string::npos;
                                    }),
              3)
        << name;
}

}  // namespace
}  // namespace lockstep::tests
