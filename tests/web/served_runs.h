// A folder of runs and a dashboard over it, as a user starts both.
#pragma once
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>

#include "support/program.h"

namespace lockstep::tests {

class ServedRuns {
 public:
  explicit ServedRuns(const std::string& options = "", const std::string& environment = "") {
    std::filesystem::create_directories(runs());
    const std::filesystem::path said = folder_.path() / "dashboard.txt";
    dashboard_ = std::make_unique<Program>(
        std::vector<std::string>{}, folder_.path(),
        std::vector<std::string>{"/bin/sh", "-c",
                                 environment + " exec \"$0\" dashboard runs --port 0 " + options + " > dashboard.txt"});
    for (int i = 0; i < 300 && port_ == 0; ++i) {
      std::ifstream in(said);
      said_ = {std::istreambuf_iterator<char>(in), {}};
      std::smatch match;
      if (std::regex_search(said_, match, std::regex("http://[^/]*:([0-9]+)/")) && said_.find("Ctrl-C") != said_.npos)
        port_ = std::stoi(match[1]);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~ServedRuns() {
    dashboard_->signal(SIGTERM);
    dashboard_->wait();
  }

  std::filesystem::path runs() const { return folder_.path() / "runs"; }
  std::string run_file() const { return (folder_.path() / "run.toml").string(); }
  int port() const { return port_; }
  const std::string& said() const { return said_; }  // by the dashboard when it started
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }

  // A small Llama that trains for some tens of seconds.
  void write_run_file(int steps) const {
    std::ofstream(run_file())
        << "[model]\nfamily = \"llama\"\nvocabulary = 257\nlayers = 4\nwidth = 64\nheads = 4\n"
           "kv_heads = 2\nffn_width = 128\nmax_positions = 128\n[data]\nexample = true\nseq = 64\n"
           "[train]\nsteps = "
        << steps
        << "\nglobal_batch = 16\nsave_every = 40\neval_every = 20\n[optim]\nlr = 0.003\nwarmup = "
           "10\n[run]\nthreads = 1\n";
  }
  std::unique_ptr<Program> train(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"train", run_file(), "--out", (runs() / name).string()};
    all.insert(all.end(), more.begin(), more.end());
    return std::make_unique<Program>(all, folder_.path());
  }
  // Lines of metrics.jsonl that are whole.
  std::vector<nlohmann::json> metrics(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(runs() / name / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
      if (!in.eof()) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Program> dashboard_;
  std::string said_;
  int port_ = 0;
};

}  // namespace lockstep::tests
