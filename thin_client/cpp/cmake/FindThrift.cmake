# Finds Apache Thrift's C++ library, for which Debian ships no CMake package.
# Defines the target Thrift::thrift.
find_path(Thrift_INCLUDE_DIR thrift/Thrift.h)
find_library(Thrift_LIBRARY thrift)
find_path(Thrift_BOOST_INCLUDE_DIR boost/numeric/conversion/cast.hpp)
if(Thrift_INCLUDE_DIR)
  file(STRINGS ${Thrift_INCLUDE_DIR}/thrift/config.h Thrift_VERSION_LINE
    REGEX "#define PACKAGE_VERSION \"[0-9.]+\"")
  string(REGEX MATCH "[0-9.]+" Thrift_VERSION "${Thrift_VERSION_LINE}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Thrift
  REQUIRED_VARS Thrift_LIBRARY Thrift_INCLUDE_DIR Thrift_BOOST_INCLUDE_DIR
  VERSION_VAR Thrift_VERSION
  REASON_FAILURE_MESSAGE "install Thrift's C++ library and the headers of Boost that it uses (Debian: libthrift-dev libboost-dev)")
mark_as_advanced(Thrift_INCLUDE_DIR Thrift_LIBRARY Thrift_BOOST_INCLUDE_DIR)
if(Thrift_FOUND AND NOT TARGET Thrift::thrift)
  add_library(Thrift::thrift UNKNOWN IMPORTED)
  set_target_properties(Thrift::thrift PROPERTIES
    IMPORTED_LOCATION ${Thrift_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES "${Thrift_INCLUDE_DIR};${Thrift_BOOST_INCLUDE_DIR}")
endif()
