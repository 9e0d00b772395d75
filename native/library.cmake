# The C library: static and shared, with headers, a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

dk_add_core(static STATIC)
dk_add_core(shared SHARED)
foreach(target static shared)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME deltakwt)
endforeach()
set_target_properties(shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                      WINDOWS_EXPORT_ALL_SYMBOLS ON)
if(WIN32)
  set_target_properties(static PROPERTIES OUTPUT_NAME deltakwt-static) # the other .lib has its name
endif()

set(DK_PACKAGE "${CMAKE_INSTALL_LIBDIR}/cmake/deltakwt")
install(TARGETS static shared EXPORT deltakwt
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES "${DK_NATIVE}/include/deltakwt.h" "${DK_NATIVE}/include/deltakwt_decision.h"
              "${DK_NATIVE}/include/deltakwt_spotter.h"
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT deltakwt NAMESPACE deltakwt:: FILE deltakwt-targets.cmake DESTINATION ${DK_PACKAGE})

configure_package_config_file("${DK_NATIVE}/deltakwt-config.cmake.in"
                              "${CMAKE_CURRENT_BINARY_DIR}/deltakwt-config.cmake"
                              INSTALL_DESTINATION ${DK_PACKAGE})
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/deltakwt-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/deltakwt-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/deltakwt-config-version.cmake"
        DESTINATION ${DK_PACKAGE})

# Relative to the file, so that an installed folder can be moved.
file(RELATIVE_PATH DK_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${DK_NATIVE}/deltakwt.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/deltakwt.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/deltakwt.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
