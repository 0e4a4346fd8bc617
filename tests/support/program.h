// The lockstep program as a user runs it: arguments in, exit code, output and resident memory out.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::tests {

struct Outcome {
  int code = -1;         // exit code; 128 + signal when killed
  std::string out, err;  // standard output and error
  std::int64_t resident_bytes = 0;
};

// A process that is running; waited for when destroyed.
class Program {
 public:
  // `launcher`: what is written before the program's name, as in mpirun -n 2; found in PATH.
  explicit Program(const std::vector<std::string>& arguments, const std::filesystem::path& working_folder = "/",
                   const std::vector<std::string>& launcher = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number);
  void wait_for_output(const std::string& text);  // until standard output has it, or the process ends
  Outcome wait();
  bool has_ended() const;  // and is waited for by wait()
  pid_t pid() const { return pid_; }
  const std::filesystem::path& err() const { return err_; }  // its standard error so far

 private:
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
};

Outcome run_program(const std::vector<std::string>& arguments, const std::filesystem::path& working_folder = "/");

// The same through a shell, which may redirect: `lockstep ARGUMENTS`, with standard error in `out` too.
Outcome run_in_shell(const std::string& arguments);

// A new empty folder of this test process, removed when destroyed.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::tests
