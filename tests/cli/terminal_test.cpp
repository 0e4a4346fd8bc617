// Colours, bars and lines that are written over: on a terminal, and nowhere else.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a command writes to a terminal, with these settings of the environment.
std::string on_a_terminal(const std::vector<std::string>& environment, const std::vector<std::string>& arguments) {
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
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
  EXPECT_GT(pid, 0);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 0) << text;
  close(terminal);
  return text;
}

class Terminal : public ::testing::Test {
 protected:
  Terminal() { std::ofstream(folder_ / "run.toml") << tiny_run(4, 30); }
  std::vector<std::string> train(const std::string& out) const {
    return {"train", folder_ / "run.toml", "--out", folder_ / out, "--set", "train.steps=2"};
  }
  TemporaryFolder folder_;
};

const char* const kEscape = "\033";
const char* const kBar = "░";

TEST_F(Terminal, HasColoursAndABarUnlessNoneAreWanted) {
  const std::string plain = on_a_terminal({}, train("a"));
  EXPECT_THAT(plain, HasSubstr(kEscape));
  EXPECT_THAT(plain, HasSubstr(kBar));
  const std::string none = on_a_terminal({"NO_COLOR=1"}, train("b"));
  EXPECT_THAT(none, Not(HasSubstr(kEscape)));
  EXPECT_THAT(none, HasSubstr(kBar));
  EXPECT_THAT(on_a_terminal({"NO_COLOR="}, train("c")), HasSubstr(kEscape));  // as no-color.org says
  EXPECT_THAT(on_a_terminal({"TERM=dumb"}, train("d")), Not(HasSubstr(kEscape)));

  const std::vector<std::string> schedule{"schedule", "--pp", "2", "--micro", "2"};
  EXPECT_THAT(on_a_terminal({}, schedule), HasSubstr(kEscape));
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
}

}  // namespace
}  // namespace lockstep::tests
