// The sign of life of a process of ranks: a byte per second into the descriptor that its agent names, and nothing where
// none is named.
#include "telemetry/agent_pulse.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;

struct Ends {
  std::array<int, 2> ends{-1, -1};
  ~Ends() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  int reader() const { return ends[0]; }
  int writer() const { return ends[1]; }
  void close_reader() { ::close(std::exchange(ends[0], -1)); }
};

struct Pipe : Ends {
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
};

void name_descriptor(const std::string& text) { ::setenv(kAgentDescriptor, text.c_str(), 1); }
void name_descriptor(int descriptor) { name_descriptor(std::to_string(descriptor)); }

// The next byte; 0: none comes within ten seconds.
char next_byte(int descriptor) {
  pollfd asked{descriptor, POLLIN, 0};
  char byte = 0;
  return ::poll(&asked, 1, 10'000) > 0 && ::read(descriptor, &byte, 1) == 1 ? byte : '\0';
}

TEST(AgentPulse, BeatsAtOnceAndThenOnAndOn) {
  const Pipe pipe;
  name_descriptor(pipe.writer());
  const AgentPulse pulse(20ms);
  EXPECT_TRUE(pulse.beats());
  for (int beat = 0; beat < 5; ++beat) EXPECT_EQ(next_byte(pipe.reader()), '.') << beat;
  EXPECT_EQ(std::getenv(kAgentDescriptor), nullptr) << "no child takes it for its own";
  EXPECT_NE(::fcntl(pipe.writer(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(AgentPulse, BeatsIntoASocketToo) {
  Ends pair;
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.ends.data()), 0);
  name_descriptor(pair.writer());
  const AgentPulse pulse(20ms);
  EXPECT_EQ(next_byte(pair.reader()), '.');
}

TEST(AgentPulse, EndsAtOnceAndIsSilentThen) {
  const Pipe pipe;
  name_descriptor(pipe.writer());
  const auto begin = std::chrono::steady_clock::now();
  {
    const AgentPulse pulse(1min);
    EXPECT_EQ(next_byte(pipe.reader()), '.');
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  pollfd asked{pipe.reader(), POLLIN, 0};
  EXPECT_EQ(::poll(&asked, 1, 0), 0);
}

TEST(AgentPulse, AFullPipeAndAReaderThatIsGoneDoNoHarm) {
  Pipe pipe;
  ::fcntl(pipe.writer(), F_SETFL, O_NONBLOCK);
  const std::string much(1 << 20, 'x');
  while (::write(pipe.writer(), much.data(), much.size()) > 0) continue;
  name_descriptor(pipe.writer());
  const AgentPulse pulse(1ms);
  ::usleep(20'000);
  std::string read(1 << 20, '\0');
  while (::read(pipe.reader(), read.data(), read.size()) == static_cast<ssize_t>(read.size())) continue;
  EXPECT_EQ(next_byte(pipe.reader()) != '\0', true) << "it beats again when there is room";
  pipe.close_reader();
  ::usleep(20'000);  // a SIGPIPE would end this program
}

TEST(AgentPulse, DoesNothingWhereNoPipeIsNamed) {
  ::unsetenv(kAgentDescriptor);
  EXPECT_FALSE(AgentPulse().beats());
  const Pipe pipe;
  const int file = ::open("/dev/null", O_WRONLY);
  for (const std::string& text :
       {std::string(), std::string("x"), std::to_string(pipe.writer()) + "x", std::string("-1"), std::string("0"),
        std::string("1"), std::string("2"), std::string("99999"), std::string("99999999999999999999"),
        std::to_string(pipe.reader()), std::to_string(file)}) {
    name_descriptor(text);
    EXPECT_FALSE(AgentPulse().beats()) << text;
  }
  ::close(file);
}

}  // namespace
}  // namespace lockstep::tests
