#include "support/program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "support/run_results.h"

namespace lockstep::tests {

namespace {

std::filesystem::path fresh_name(const char* what) {
  static std::atomic<int> count{0};
  return std::filesystem::temp_directory_path() /
         ("lockstep-" + std::string(what) + "-" + std::to_string(getpid()) + "-" + std::to_string(count++));
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, const std::filesystem::path& working_folder,
                 const std::vector<std::string>& launcher)
    : out_(fresh_name("out")), err_(fresh_name("err")) {
  std::vector<std::string> words = launcher;
  words.push_back(LOCKSTEP_BINARY);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    const int out = open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
              err = open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (chdir(working_folder.c_str()) != 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    execvp(argv[0], argv.data());
    _exit(127);
  }
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove(out_, ignored);
  std::filesystem::remove(err_, ignored);
}

void Program::signal(int number) { kill(pid_, number); }

bool Program::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

void Program::wait_for_output(const std::string& text) {
  for (int i = 0; i < 60000; ++i) {
    if (text_of(out_).find(text) != std::string::npos) return;
    if (has_ended()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw std::runtime_error("the program never said '" + text + "'");
}

Outcome Program::wait() {
  int status = 0;
  rusage usage{};
  if (wait4(pid_, &status, 0, &usage) != pid_) throw std::runtime_error("wait4 failed");
  pid_ = -1;
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = text_of(out_),
          .err = text_of(err_),
          .resident_bytes = usage.ru_maxrss * 1024};
}

Outcome run_program(const std::vector<std::string>& arguments, const std::filesystem::path& working_folder) {
  return Program(arguments, working_folder).wait();
}

Outcome run_in_shell(const std::string& arguments) {
  const std::string command = "exec 2>&1; " + std::string(LOCKSTEP_BINARY) + " " + arguments;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("popen failed");
  Outcome outcome;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

TemporaryFolder::TemporaryFolder() : path_(fresh_name("folder")) { std::filesystem::create_directories(path_); }

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::tests
