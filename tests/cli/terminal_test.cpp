// Colours, bars and lines that are written over: on a terminal, and nowhere else.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/terminal.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/screen.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A command on a terminal, with these settings of the environment.
class OnATerminal {
 public:
  OnATerminal(const std::vector<std::string>& environment, const std::vector<std::string>& arguments,
              unsigned short columns = 200) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(openpty(&terminal_, &program_side_, nullptr, nullptr, &size), 0);
    fcntl(terminal_, F_SETFD, FD_CLOEXEC);
    pid_ = fork();
    if (pid_ == 0) {
      login_tty(program_side_);
      std::vector<std::string> words{"env", "-u", "NO_COLOR", "TERM=xterm"};
      words.insert(words.end(), environment.begin(), environment.end());
      words.push_back(LOCKSTEP_BINARY);
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      execvp("env", pointers.data());
      _exit(127);
    }
    EXPECT_GT(pid_, 0);
  }
  ~OnATerminal() {
    if (pid_ > 0) end();
    close(terminal_);
    if (program_side_ >= 0) close(program_side_);
  }

  void signal(int number) const { kill(pid_, number); }
  // As a library or another process does.
  void write_beside(const std::string& text) const {
    EXPECT_EQ(::write(program_side_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Reads until this was written once more, or for at most twenty seconds.
  void wait_for(const std::string& text) {
    const std::size_t from = text_.size();
    pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
    while (text_.find(text, from) == std::string::npos && poll(&ready, 1, 20'000) > 0 && take()) {
    }
    EXPECT_NE(text_.find(text, from), std::string::npos) << text_;
  }
  // All that was written, and the exit code.
  std::pair<std::string, int> end() {
    close(std::exchange(program_side_, -1));  // the terminal hangs up when the program has ended
    while (take()) {
    }
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return {text_, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  }

 private:
  bool take() {
    char buffer[4096];
    const ssize_t count = read(terminal_, buffer, sizeof buffer);
    if (count > 0) text_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }
  int terminal_ = -1, program_side_ = -1;
  pid_t pid_ = -1;
  std::string text_;
};

std::string on_a_terminal(const std::vector<std::string>& environment, const std::vector<std::string>& arguments) {
  const auto [text, code] = OnATerminal(environment, arguments).end();
  EXPECT_EQ(code, 0) << text;
  return text;
}

std::vector<std::string> rows_of(const std::string& text, std::size_t columns = 200) {
  Screen screen(columns);
  screen.write(text);
  EXPECT_EQ(screen.unknown(), "");
  return screen.rows();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Of each step whose line is there, which it is.
std::vector<std::string> steps_in_rows(const std::vector<std::string>& rows) {
  std::vector<std::string> steps;
  for (const std::string& row : rows)
    if (row.starts_with("step ") && row.find("tok/s") != std::string::npos)
      steps.push_back(row.substr(5, row.find('/') - 5));
  return steps;
}

class Terminal : public ::testing::Test {
 protected:
  Terminal() { std::ofstream(folder_ / "run.toml") << tiny_run(4, 30); }
  std::vector<std::string> train(const std::string& out,
                                 const std::vector<std::string>& more = {"--set", "train.steps=2"}) const {
    std::vector<std::string> all{"train", folder_ / "run.toml", "--out", folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  TemporaryFolder folder_;
};

const char* const kEscape = "\033";
const char* const kBar = "░";
const std::vector<std::string> kLong{"--set", "train.steps=1000000", "--set", "train.save_every=0",
                                     "--set", "train.eval_every=0"};

TEST_F(Terminal, HasColoursAndABarUnlessNoneAreWanted) {
  const auto colours = [](const std::string& text) {
    Screen screen(200);
    screen.write(text);
    EXPECT_EQ(screen.unknown(), "");
    return screen.coloured();
  };
  const std::string plain = on_a_terminal({}, train("a"));
  EXPECT_GT(colours(plain), 0);
  EXPECT_THAT(plain, HasSubstr(kBar));
  const std::string none = on_a_terminal({"NO_COLOR=1"}, train("b"));
  EXPECT_EQ(colours(none), 0);
  EXPECT_THAT(none, HasSubstr(kBar));
  EXPECT_GT(colours(on_a_terminal({"NO_COLOR="}, train("c"))), 0);  // as no-color.org says
  EXPECT_THAT(on_a_terminal({"TERM=dumb"}, train("d")), Not(HasSubstr(kEscape)));

  const std::vector<std::string> schedule{"schedule", "--pp", "2", "--micro", "2"};
  EXPECT_GT(colours(on_a_terminal({}, schedule)), 0);
  EXPECT_THAT(on_a_terminal({"NO_COLOR=1"}, schedule), Not(HasSubstr(kEscape)));
}

TEST_F(Terminal, IsNotWhatALauncherHasPutInBetween) {
  // mpirun's processes have one, and what they write goes to whatever mpirun's output is.
  const std::string one = on_a_terminal({"RANK=0", "WORLD_SIZE=1"}, {"schedule", "--pp", "2", "--micro", "2"});
  EXPECT_THAT(one, Not(HasSubstr(kEscape)));
}

TEST_F(Terminal, IsNeitherAFileNorAPipe) {
  const Outcome o = run_program(train("file"));
  ASSERT_EQ(o.code, 0) << o.err;
  for (const std::string& text : {o.out, o.err, text_of(folder_ / "file/log.txt")}) {
    EXPECT_THAT(text, Not(HasSubstr(kEscape)));
    EXPECT_THAT(text, Not(HasSubstr(kBar)));
  }
  EXPECT_THAT(steps_in_rows(lines_of(o.out)), ElementsAre("1", "2"));
}

TEST_F(Terminal, HasAStatusLineThatIsGoneWhenTheRunEnds) {
  const std::string text = on_a_terminal({"NO_COLOR=1"}, train("a", {"--set", "train.save_every=2"}));
  EXPECT_THAT(text, ::testing::ContainsRegex("\r\n[^\r\n]* [1-6]/6  ETA [0-9:]+  loss [0-9.]+  [0-9,]+ tok/s  "
                                             "MFU [0-9]+% (above the measured peak|excellent|good|fair|poor)\r\033.A"));
  const std::vector<std::string> rows = rows_of(text);
  EXPECT_THAT(rows, Each(Not(HasSubstr("ETA"))));
  EXPECT_THAT(steps_in_rows(rows), ElementsAre("6")) << "the last step's line stays";
  const std::vector<std::string> notes = lines_of(text_of(folder_ / "a/log.txt"));
  ASSERT_GT(notes.size(), 3u);
  for (const std::string& note : notes) EXPECT_EQ(std::ranges::count(rows, note), 1) << note;
}

TEST_F(Terminal, LeavesEveryNthStepAsALineWhenAsked) {
  EXPECT_THAT(steps_in_rows(rows_of(on_a_terminal({}, train("a", {"--log-every", "4"})))), ElementsAre("4", "6"));
  EXPECT_THAT(steps_in_rows(lines_of(run_program(train("b", {"--log-every", "4"})).out)), ElementsAre("4", "6"));
}

TEST_F(Terminal, HasLinesNoLongerThanItIsWide) {
  constexpr unsigned short kColumns = 38;  // two too few for the loss
  const std::string text = OnATerminal({}, train("a"), kColumns).end().first;
  std::size_t longest = 0;
  for (std::size_t at = 0; (at = text.find("\r\n", at)) != std::string::npos; ++at) {
    const std::size_t end = text.find("\r\033[A", at), next = text.find("\r\n", at + 2);
    if (end == std::string::npos || next < end) continue;
    Screen line(1000);
    line.write(text.substr(at + 2, end - at - 2));
    Screen narrow(kColumns);
    narrow.write(text.substr(at + 2, end - at - 2));
    const std::string row = line.rows().front();
    EXPECT_EQ(narrow.wrapped(), 0) << row;
    std::size_t columns = 0;
    for (const char c : row) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    longest = std::max(longest, columns);
    EXPECT_THAT(row, ::testing::MatchesRegex("[^ ]+ [0-2]/2(  the first step|  ETA [0-9:]+(  loss [0-9.]+)?)?"))
        << "whole fields";
  }
  EXPECT_LT(longest, kColumns);
  EXPECT_GE(longest, 28u) << "the bar, the step and the time left fit";
}

TEST_F(Terminal, KeepsWhatOtherCodeWritesMeanwhile) {
  OnATerminal run({"NO_COLOR=1"}, train("a", kLong));
  run.wait_for("ETA");
  run.write_beside("a library says this\n");
  run.wait_for("ETA");
  run.write_beside(
      "and later that, which is a longer line than the status line is, so that all of it would be covered: "
      "it is whole\n");
  run.wait_for("ETA");
  run.signal(SIGINT);
  const auto [text, code] = run.end();
  EXPECT_EQ(code, 0);
  const std::vector<std::string> rows = rows_of(text);
  EXPECT_EQ(std::ranges::count(rows, "a library says this"), 1) << text;
  EXPECT_THAT(rows, Contains(AllOf(StartsWith("and later that"), ::testing::EndsWith("covered: it is whole"))));
  EXPECT_THAT(rows, Contains(HasSubstr("by SIGINT as asked")));
  EXPECT_THAT(rows, Each(Not(HasSubstr("ETA"))));
}

TEST_F(Terminal, AnswersAnInterruptAtOnceWhereTheStepTakesLonger) {
  // Steps of about a second.
  OnATerminal run({"NO_COLOR=1"}, {"train", "--out", folder_ / "slow", "--set", "train.global_batch=96", "--set",
                                   "run.threads=1", "--set", "train.steps=100"});
  run.wait_for("ETA");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // into the next step
  run.signal(SIGINT);
  run.wait_for("lockstep: stopping after this step; press Ctrl-C again to end now without saving");
  const auto [text, code] = run.end();
  EXPECT_EQ(code, 0);
  const std::vector<std::string> rows = rows_of(text);
  EXPECT_THAT(rows, Contains(HasSubstr("by SIGINT as asked")));
  EXPECT_THAT(rows, Contains("lockstep: stopping after this step; press Ctrl-C again to end now without saving"));
}

TEST_F(Terminal, HasNoStatusLineAfterASecondSignal) {
  OnATerminal run({}, train("a", kLong));
  run.wait_for("ETA");
  run.signal(SIGINT);
  run.signal(SIGTERM);
  const auto [text, code] = run.end();
  EXPECT_EQ(code, 130);
  std::vector<std::string> rows = rows_of(text);
  EXPECT_THAT(rows, Each(Not(HasSubstr("ETA"))));
  while (!rows.empty() && rows.back().empty()) rows.pop_back();
  EXPECT_EQ(rows.back(), "lockstep: a second signal: ended at once, nothing more was saved");
}

TEST_F(Terminal, OfAQuietRunHasNotesAndErrorsAlone) {
  const std::vector<std::string> quiet{"--quiet", "--set", "run.trace=1"};
  const std::string note = "the timeline of 1 step is in " + (folder_ / "a/trace.json");
  const Outcome o = run_program(train("a", quiet));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, note + "\n");
  EXPECT_THAT(text_of(folder_ / "a/log.txt"),
              ::testing::ContainsRegex("step 6: evaluation loss [0-9.]+, accuracy [0-9.]+%"));
  std::vector<std::string> again = train("a", quiet);
  again.push_back("--overwrite");
  EXPECT_EQ(on_a_terminal({"NO_COLOR=1"}, again), note + "\r\n");
  const Outcome failed = run_program(train("a", {"--quiet"}));
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("holds a run already"));
}

TEST(TerminalColumns, HoldWholeFieldsOfAStatusLine) {
  const std::string line = "██ 7/60  loss 4.1589  1,234 tok/s";
  EXPECT_EQ(whole_fields(line, 33), line);
  EXPECT_EQ(whole_fields(line, 32), "██ 7/60  loss 4.1589") << "not 1,234 tok/";
  EXPECT_EQ(whole_fields(line, 20), "██ 7/60  loss 4.1589");
  EXPECT_EQ(whole_fields(line, 19), "██ 7/60");
  EXPECT_EQ(whole_fields(line, 6), "██ 7/6") << "of the first as much as there is room for";
  EXPECT_EQ(whole_fields("\033[36m██\033[0m 7/60  loss 4", 7), "\033[36m██\033[0m 7/60");
  EXPECT_EQ(whole_fields("", 5), "");
}

TEST(TerminalColumns, CountCharactersAndNoColours) {
  EXPECT_EQ(cut_to_columns("██ab", 3), "██a");
  EXPECT_EQ(cut_to_columns("██ab", 4), "██ab");
  EXPECT_EQ(cut_to_columns("\033[36m██\033[0mab", 3), "\033[36m██\033[0ma\033[0m");
  EXPECT_EQ(cut_to_columns("\033[36m██\033[0mab", 4), "\033[36m██\033[0mab");
  EXPECT_EQ(cut_to_columns("ab", 0), "");
}

}  // namespace
}  // namespace lockstep::tests
