// A headless Chromium, driven through chromedriver by the WebDriver protocol.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "support/program.h"

namespace lockstep::tests {

// A port that was free a moment ago.
int free_port();

// Whether all of these programs are installed.
bool have_programs(const std::vector<std::string>& names);

class Browser {
 public:
  explicit Browser(int width = 1500, int height = 1000);
  ~Browser();

  void open(const std::string& url);
  // What the script returns.
  nlohmann::json run(const std::string& script, const nlohmann::json& arguments = nlohmann::json::array());
  // Until the script returns something that is true; false: it did not within these seconds.
  bool wait_for(const std::string& script, double seconds);
  // The page from its top, of this height.
  void screenshot(const std::filesystem::path& file, int height);
  // What the page complained of: errors of its script, and what its own policy forbade.
  std::string complaints();

 private:
  nlohmann::json call(const std::string& method, const std::string& path, const nlohmann::json& body = nullptr);

  int port_, width_;
  std::unique_ptr<Program> driver_;
  std::string session_;
};

}  // namespace lockstep::tests
